"""A rate covers the epochs after the warm-up, counted by offsets; an irregular run is reported."""

from __future__ import annotations

from typing import Any

from tests.bench.epochs import Epoch, irregular, read_epochs, steady_rate


def progress(batch: int, start: dict[str, int] | None, end: dict[str, int]) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": "2026-05-17T10:00:00.250Z",
        "durationMs": {"triggerExecution": 400, "addBatch": 300},
        "numInputRows": 999,
        "sources": [
            {"startOffset": None if start is None else {"t": start}, "endOffset": {"t": end}}
        ],
    }


def epoch(number: int, start_ms: float, took_ms: float, records: int = 100) -> Epoch:
    return Epoch(number, records, start_ms, took_ms, {})


def test_records_are_counted_by_offsets() -> None:
    (found,) = read_epochs([progress(3, {"0": 10, "1": 20}, {"0": 15, "1": 40})])
    assert (found.number, found.records) == (3, 25)


def test_the_first_epoch_begins_at_offset_0() -> None:
    (found,) = read_epochs([progress(0, None, {"0": 15, "1": 40})])
    assert found.records == 55


def test_an_epoch_ends_its_duration_after_its_begin() -> None:
    (found,) = read_epochs([progress(0, None, {"0": 15})])
    assert found.end_ms - found.start_ms == found.took_ms == 400
    assert found.start_ms % 1000 == 250


def test_triggers_without_records_are_no_epochs() -> None:
    assert read_epochs([progress(4, {"0": 15}, {"0": 15})]) == []


def test_the_rate_is_from_the_end_of_the_warm_up_to_the_end_of_the_last_epoch() -> None:
    slow = [epoch(0, 0, 5000), epoch(1, 5000, 3000)]
    fast = [epoch(2, 8100, 400), epoch(3, 8500, 500)]
    assert steady_rate(slow + fast, warm_up=2) == 200 / 1.0


def test_without_a_warm_up_the_rate_begins_with_the_first_epoch() -> None:
    assert steady_rate([epoch(0, 1000, 500)], warm_up=0) == 200


def test_too_few_epochs_have_no_rate() -> None:
    assert steady_rate([epoch(0, 0, 5000), epoch(1, 5000, 3000)], warm_up=2) is None


def test_a_regular_run_has_nothing_to_tell() -> None:
    assert irregular([epoch(0, 0, 1), epoch(1, 1, 1)], records=200) == ""


def test_an_epoch_that_ran_twice_is_told() -> None:
    assert "twice" in irregular([epoch(0, 0, 1), epoch(0, 1, 1)], records=None)


def test_a_run_that_was_started_again_is_told() -> None:
    assert "started again" in irregular([epoch(2, 0, 1)], records=None)


def test_records_that_were_not_read_are_told() -> None:
    assert irregular([epoch(0, 0, 1)], records=200) == "100 records read instead of 200"
