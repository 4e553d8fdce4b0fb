"""Phases come from the spans of measured epochs alone; a repeated epoch is reported."""

from __future__ import annotations

from typing import Any

from tests.bench.epochs import Epoch
from tests.bench.phases import OUTSIDE_CALLBACK, phase_times, repeated


def span(
    name: str, ms: float, id_: str = "", parent: str = "", **attributes: object
) -> dict[str, Any]:
    return {
        "name": name,
        "span_id": id_,
        "parent_id": parent,
        "start_ns": 0,
        "end_ns": int(ms * 1e6),
        "attributes": attributes,
    }


EPOCHS = [Epoch(number, 100, 0.0, 50.0, {}) for number in range(4)]


def test_epochs_of_the_warm_up_are_left_out() -> None:
    spans = [span("stage", 10.0 * n, epoch=n) for n in range(4)]
    assert phase_times(spans, EPOCHS, warm_up=2) == {"stage": [20.0, 30.0]}


def test_epochs_without_records_are_left_out() -> None:
    assert phase_times([span("stage", 10.0, epoch=9)], EPOCHS, warm_up=2) == {}


def test_each_sink_has_its_own_apply() -> None:
    spans = [span("apply", 3, epoch=2, sink="b"), span("apply", 4, epoch=2, sink="a")]
    assert phase_times(spans, EPOCHS) == {"apply a": [4.0], "apply b": [3.0]}


def test_rounds_are_pooled_whatever_their_topics_are_called() -> None:
    spans = [span("apply", ms, epoch=2, sink=f"kafka.round-{ms}") for ms in (3, 4)]
    assert phase_times(spans, EPOCHS) == {"apply kafka": [3.0, 4.0]}


def test_the_steps_of_an_apply_are_known_by_their_parent() -> None:
    spans = [
        span("commit", 2, parent="x", sink="a"),
        span("apply", 5, id_="x", epoch=2, sink="a"),
        span("commit", 9, parent="y", sink="a"),
        span("apply", 9, id_="y", epoch=0, sink="a"),
    ]
    assert phase_times(spans, EPOCHS) == {"apply a": [5.0], "apply a: commit": [2.0]}


def test_what_spark_does_around_an_epoch_is_the_rest_of_its_trigger() -> None:
    assert phase_times([span("epoch", 40.0, epoch=3)], EPOCHS) == {OUTSIDE_CALLBACK: [10.0]}


def test_phases_are_in_the_order_of_the_protocol() -> None:
    names = ("epoch", "apply", "decide", "stage")
    spans = [span(name, 1.0, epoch=2, sink="a") for name in names]
    assert list(phase_times(spans, EPOCHS)) == ["stage", "decide", "apply a", OUTSIDE_CALLBACK]


def test_a_run_without_repeats_has_nothing_to_tell() -> None:
    assert repeated([span("stage", 1, epoch=0), span("epoch", 1, epoch=0, replayed=False)]) == ""


def test_an_epoch_that_was_staged_again_is_told() -> None:
    assert "more than once: [1]" in repeated([span("stage", 1, epoch=1), span("stage", 1, epoch=1)])


def test_an_epoch_that_was_replayed_is_told() -> None:
    assert "replayed: [1]" in repeated([span("epoch", 1, epoch=1, replayed=True)])
