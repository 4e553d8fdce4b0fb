"""Percentiles, spreads and ratios say what they are named for; an anomaly is in none of them."""

from __future__ import annotations

import pytest

from tests.bench.figures import Run, Spread, anomalies, percentile, pooled, ratios, spread


def run(contender: str, round_: int, rate: float, workload: str = "w") -> Run:
    return Run(workload, contender, round_, figures={"records_s": rate})


def broken(contender: str, round_: int) -> Run:
    return Run("w", contender, round_, anomaly="3 rows instead of 4")


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(v) for v in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100


def test_the_order_of_values_does_not_matter_to_a_percentile() -> None:
    assert percentile([5.0, 1.0, 3.0], 50) == 3.0


def test_the_99th_percentile_of_few_values_is_the_largest() -> None:
    assert percentile([1.0, 2.0, 9.0], 99) == 9.0


def test_every_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 1) == percentile([7.0], 99) == 7.0


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_percentage_out_of_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="no percentile"):
        percentile([1.0], percent)


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="of 0 values"):
        percentile([], 50)


def test_a_spread_is_smallest_middle_and_largest() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0, 3)


def test_nothing_has_no_spread() -> None:
    assert Spread.of([]) is None


def test_ratios_are_of_pairs_of_the_same_round() -> None:
    runs = [run("a", 1, 80), run("b", 1, 100), run("a", 2, 300), run("b", 2, 200)]
    # of the medians over all rounds it would be 190 / 150
    assert ratios(runs, "w", "records_s", "a", "b") == Spread(0.8, 1.15, 1.5, 2)


def test_a_run_with_an_anomaly_takes_its_pair_out() -> None:
    runs = [run("a", 1, 80), run("b", 1, 100), run("a", 2, 300), broken("b", 2)]
    assert ratios(runs, "w", "records_s", "a", "b") == Spread(0.8, 0.8, 0.8, 1)


def test_without_a_sound_pair_there_is_no_ratio() -> None:
    assert ratios([run("a", 1, 80), run("b", 2, 100)], "w", "records_s", "a", "b") is None


def test_workloads_are_not_mixed() -> None:
    runs = [run("a", 1, 80), run("b", 1, 100, workload="other")]
    assert ratios(runs, "w", "records_s", "a", "b") is None
    assert spread(runs, "w", "b", "records_s") is None


def test_a_run_with_an_anomaly_is_in_no_spread_and_is_named() -> None:
    runs = [run("a", 1, 80), broken("a", 2)]
    assert spread(runs, "w", "a", "records_s") == Spread(80, 80, 80, 1)
    assert anomalies(runs) == [runs[1]]


def test_a_run_with_an_anomaly_cannot_have_a_number() -> None:
    with pytest.raises(ValueError, match="no figures"):
        Run("w", "a", 1, figures={"records_s": 1.0}, anomaly="an error")


def test_phases_of_all_rounds_are_pooled() -> None:
    runs = [
        Run("w", "a", 1, phases={"stage": [1.0, 2.0]}),
        Run("w", "a", 2, phases={"stage": [3.0], "decide": [4.0]}),
        Run("w", "b", 1, phases={"stage": [9.0]}),
    ]
    assert pooled(runs, "w", "a") == {"stage": [1.0, 2.0, 3.0], "decide": [4.0]}
