"""Tests of the operator's table."""

from tests.bench.operator import report

JOBS = 1000
JOBS_NAMED = f"{JOBS:,} jobs"


def printed(*rounds: dict[str, float]) -> str:
    """Return the table of some rounds."""
    return "\n".join(report.lines(rounds, JOBS))


def test_a_row_has_median_and_spread_beside_what_is_asked() -> None:
    text = printed(*({report.RATE: rate} for rate in (30.0, 10.0, 20.0)))
    (row,) = (
        line for line in text.splitlines() if "pods created a second" in line and JOBS_NAMED in line
    )
    assert row.split()[-6:] == ["20.0", "(10.0", "-", "30.0)", "7", "20"]


def test_ratios_are_of_the_same_round() -> None:
    text = printed(
        {report.RATE: 10.0, report.rate_key(1): 1.0}, {report.RATE: 40.0, report.rate_key(1): 2.0}
    )
    assert "15 (10 - 20)" in text


def test_what_a_round_did_not_reach_has_no_number() -> None:
    assert printed({report.RATE: 1.0}).count("no number") == len(
        report.measures(JOBS)
    ) - 1 + 2 * len(report.SUBMITS)


JOBS_NAMED = f"{JOBS:,} jobs"
