"""Tests of the console's table."""

from tests.bench.console import report


def printed(*rounds: report.Figures) -> str:
    """Return the table of some rounds."""
    return "\n".join(report.lines(rounds, 1000, 100))


def test_a_row_has_the_figures_of_both_stores_and_the_aim() -> None:
    text = printed(
        *({"folder": {report.PAGE: ms}, "S3": {report.PAGE: 2 * ms}} for ms in (30.0, 10.0, 20.0))
    )
    (row,) = (line for line in text.splitlines() if "jobs read: page" in line)
    assert row.split()[-9:] == ["20", "(10", "-", "30)", "40", "(20", "-", "60)", "1,000"]


def test_what_was_not_measured_has_no_number() -> None:
    """Without Chromium nothing is painted."""
    rows = [
        line for line in printed({"folder": {report.PAGE: 1.0}}).splitlines() if "paint" in line
    ]
    assert [row.count("no number") for row in rows] == [2, 2]
