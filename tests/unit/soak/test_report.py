"""The report of a soak."""

from __future__ import annotations

import pytest

from tests.soak import report

RUN = {
    "seed": 7,
    "minutes": 4.0,
    "rate": 40.0,
    "commit": "abc",
    "began_s": 40.0,
    "samples": [
        {"minute": n, "values": {"open files of Kafka": 100.0, "objects of ip-count": 10.0 * n}}
        for n in range(8)
    ],
    "kills": [{"minute": 1.0, "victim": "Kafka"}, {"minute": 2.0, "victim": "Kafka"}],
    "applied_s": {"ip-count": {0: 100.0, 1: 101.0, 2: 105.0}},
    "records": {"ip-count": 1234},
    "restarts": {"ip-count": 3},
    "verified": {"ip-count": True},
}


def test_a_series_above_its_second_quarter_at_the_end_has_grown() -> None:
    assert report.grown(RUN) == ["objects of ip-count"]


@pytest.mark.parametrize(("last", "grown"), [(20.0, False), (23.0, True)])
def test_records_of_drivers_may_grow_up_to_their_limit(last: float, *, grown: bool) -> None:
    name = "starts objects of two-sinks"
    samples = [{"minute": n, "values": {name: value}} for n, value in enumerate([1, 2, 2, last])]
    assert (name in report.grown({**RUN, "samples": samples})) == grown


def test_a_peak_in_the_middle_is_no_growth() -> None:
    trend = report.Trend.of(
        [(float(n), value) for n, value in enumerate([1, 9, 5, 5, 90, 5, 5, 5])]
    )
    assert trend is not None
    assert not trend.grown


def test_too_few_samples_have_no_trend() -> None:
    assert report.Trend.of([(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]) is None


@pytest.mark.parametrize(("share", "age"), [(0.0, 0.0), (0.5, 1.5), (0.9, 3.5), (1.0, 4.0)])
def test_the_age_is_weighted_by_time(share: float, age: float) -> None:
    """Gaps of 1 s and 4 s: for half of the 5 s the age is at most 1.5 s."""
    assert report.ages_s([100.0, 101.0, 105.0], [share]) == pytest.approx([age])


def test_one_epoch_has_no_age() -> None:
    assert report.ages_s([100.0], [0.99]) == [0.0]


@pytest.mark.parametrize(
    ("began_s", "found"), [(40.0, [4.0]), (20.0, [1.0]), (19.0, []), (61.0, [4.0]), (61.5, [])]
)
def test_the_longest_time_between_epochs_belongs_to_the_kill_near_its_begin(
    began_s: float, found: list[float]
) -> None:
    """A job that was down at a kill has none: that time belongs to an earlier one."""
    run = {**RUN, "began_s": began_s, "kills": [{"minute": 1.0, "victim": "MySQL"}]}
    assert report.without_epoch_s(run) == {"MySQL": {"ip-count": found}}


def test_the_page_has_ages_kills_and_trends() -> None:
    text, plots = report.page(RUN)
    assert "| ip-count | 1,234 | exact | 3 | 3 | 1.5 s | 4.0 s | 4.0 s |" in text
    assert "| Kafka | 2 | median 4 s, longest 4 s |" in text
    assert "| open files of Kafka | 100 | 100 | flat |" in text
    assert "![ids](soak.plots/ids.svg)" in text
    assert plots["files"].startswith("<svg")


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("     1,234  source lines\n         0  late lines\nexact", True),
        ("     1,234  source records\nexact", True),
        ("     1,234  source lines\n         1  late lines\nexact", False),
        (
            "     1,234  source lines\n  1  dead letters that cannot be judged any more\nexact",
            False,
        ),
        ("     1,251  source lines\n        17  late lines\nexact", True),
        ("     1,250  source lines\n        17  late lines\nexact", False),
    ],
)
def test_only_rows_that_were_sent_twice_may_be_late(said: str, *, right: bool) -> None:
    """Of old epochs `verify` believes a letter that says so."""
    assert report.nothing_late(said, 1234) is right
