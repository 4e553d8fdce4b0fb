"""Rounds are shuffled in a way that can be repeated, and sizes leave epochs to measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import command_line
from tests.bench.figures import spread
from tests.bench.joined import Joined, join
from tests.bench.order import Order
from tests.bench.page import RESULTS
from tests.bench.plan import (
    FLINK,
    HALF_LOAD,
    KEY_COUNT,
    PACES,
    SLUICEGATE,
    WARM_UP_EPOCHS,
    WORKLOADS,
    Pace,
    Workload,
    shuffled,
)
from tests.bench.readback import Content

NAMES = ("a", "b", "c")


def test_the_same_seed_gives_the_same_order() -> None:
    first, again = (shuffled(NAMES, seed=7, round_=2, workload="w") for _ in range(2))
    assert first == again


def test_every_contender_runs_once_in_a_round() -> None:
    assert sorted(shuffled(NAMES, seed=7, round_=2, workload="w")) == list(NAMES)


def test_rounds_differ() -> None:
    orders = {tuple(shuffled(NAMES, seed=1, round_=n, workload="w")) for n in range(20)}
    assert len(orders) > 3


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
@pytest.mark.parametrize("records", [100, 12_345, 50_000_000])
def test_any_size_has_ten_epochs_or_more(workload: Workload, records: int) -> None:
    sized = workload.of_size(records)
    assert sized.records == records
    assert records / sized.epoch_records >= 10
    assert sized.epoch_records <= workload.epoch_records


def test_an_order_survives_its_file(tmp_path: Path) -> None:
    order = Order("ip_count", "a", "host:1", "in", "out", "dead", "t", 10, "1 second")
    order.write(tmp_path)
    assert Order.read(tmp_path) == order


def test_a_sink_that_holds_what_it_should_does_not_differ() -> None:
    assert Content(3, 9).differs("the topic", Content(3, 9)) == ""


def test_missing_rows_are_told() -> None:
    assert (
        Content(2, 9).differs("the topic", Content(3, 9)) == "the topic holds 2 rows instead of 3"
    )


def test_as_many_rows_with_other_values_are_told() -> None:
    assert "not the right ones" in Content(3, 8).differs("the topic", Content(3, 9))


def test_epochs_that_fill_a_state_are_not_measured() -> None:
    workload = Workload("w", KEY_COUNT, 0, 2000, 100, (), keys=950)
    assert workload.warm_up_epochs == 10
    assert Workload("w", KEY_COUNT, 0, 2000, 100, (), keys=50).warm_up_epochs == WARM_UP_EPOCHS


def test_a_latency_is_measured_long_enough_for_a_p99() -> None:
    """100 records and 60 epochs are above it."""
    assert min(pace.seconds for pace in PACES) >= 60


@pytest.fixture(scope="module")
def published() -> Joined:
    """Return the published results."""
    return join(json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.glob("*.json"))


def test_published_results_have_the_names_of_workloads(published: Joined) -> None:
    assert published.paces.keys() <= {pace.name for pace in PACES}
    assert {workload.name for workload in WORKLOADS} >= {
        name for name in published.workloads if not name.startswith("growth-")
    }


@pytest.mark.parametrize("pace", [pace for pace in PACES if pace.half_load], ids=lambda p: p.name)
def test_half_load_is_about_a_quarter_of_the_published_rate(published: Joined, pace: Pace) -> None:
    """That was measured without a sender and a reader, which share the cores at half load."""
    full = spread(published.runs, pace.full_load, SLUICEGATE, "records_s")
    assert full
    assert 0.2 <= pace.records_s / full.median <= 0.3


@pytest.mark.parametrize("pace", PACES, ids=lambda p: p.name)
def test_an_epoch_has_room_for_a_second_that_is_late(pace: Pace) -> None:
    assert pace.epoch_records >= 2 * pace.records_s


def test_records_are_due_at_equal_distances() -> None:
    pace = Pace("1 second", records_s=400)
    assert [pace.due_after_ns(number) for number in (0, 1, 400)] == [0, 2_500_000, 1_000_000_000]


def test_the_rate_of_a_latency_can_be_given() -> None:
    name = f"latency-{HALF_LOAD}"
    arguments = ["--only", name, "--records-s", "90000"]
    paces = command_line.selected(command_line.parse(arguments), []).paces
    assert [(pace.workload, pace.records_s) for pace in paces] == [(name, 90_000)] * 2


def test_each_latency_is_selected_alone() -> None:
    for only in {pace.workload for pace in PACES}:
        paces = command_line.selected(command_line.parse(["--only", only]), []).paces
        assert [pace.trigger for pace in paces] == ["1 second", "200 milliseconds"]


def test_only_the_selected_contenders_are_measured() -> None:
    results = command_line.selected(command_line.parse(["--contenders", "flink,sluicegate"]), [])
    assert {name for one in results.workloads for name in one.contenders} == {FLINK, SLUICEGATE}
    assert results.paces[0].contenders == (SLUICEGATE, FLINK)


def test_a_profiled_run_gives_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.parse(["--profile", "here", "--json", "figures.json"])
    assert "--profile slows the runs down" in capsys.readouterr().err
