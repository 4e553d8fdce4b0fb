"""When the tests of the platform give up on a job, and what they do not accept of one that is exact."""

from __future__ import annotations

import pytest

from sluicegate_jobs.generators import access_lines, indicators
from tests.e2e.platform import proves_wrong
from tests.e2e.sent import SentRecords
from tests.robustness.traffic.late_lines import most_late

LOST = "  12  source lines\nLOST: 1\n    a window\nNOT EXACT\n"
DUPLICATED = "  12  source lines\nDUPLICATED: 1\n    a window\nNOT EXACT\n"
BETWEEN_SINKS = "an epoch is decided and not applied"

LINES = [message.value or b"" for message in access_lines(1200, 1)]
INVALID = 24
CALLS = [LINES[:600], LINES[600:]]
LATE = most_late(CALLS)


@pytest.fixture
def sent() -> SentRecords:
    records = SentRecords()
    for lines in CALLS:
        records.add("ip_count", lines)
    records.add("two_sinks", [message.value or b"" for message in indicators(100, 1)])
    return records


@pytest.mark.parametrize(
    ("output", "wrong"),
    [(DUPLICATED, True), (LOST, False), (BETWEEN_SINKS, False)],
    ids=["a duplicate", "in an epoch that is decided", "between two sinks"],
)
def test_a_finding_that_cannot_go_away_is_a_failure(output: str, *, wrong: bool) -> None:
    assert proves_wrong(output) == wrong


@pytest.mark.parametrize(
    ("lines", "letters", "right"),
    [
        (1200, INVALID, True),
        (1200, INVALID + LATE, True),
        (1200, INVALID + LATE + 1, False),
        (1200, INVALID - 1, False),
        (1199, INVALID, False),
    ],
)
def test_a_job_must_have_all_lines_and_no_more_dead_letters_than_they_explain(
    sent: SentRecords, lines: int, letters: int, *, right: bool
) -> None:
    said = f"  {lines:>12,}  source lines\n  {letters:>12,}  dead letters\n"
    assert (sent.contradiction("ip_count", said) is None) is right


@pytest.mark.parametrize(("letters", "right"), [(2, True), (3, False), (1, False)])
def test_of_two_sinks_only_invalid_records_are_dead_letters(
    sent: SentRecords, letters: int, *, right: bool
) -> None:
    said = f"  100  source records\n  0  source records not read yet\n  {letters}  dead letters\n"
    assert (sent.contradiction("two_sinks", said) is None) is right


def test_an_output_that_counts_nothing_is_not_accepted(sent: SentRecords) -> None:
    assert sent.contradiction("ip_count", "exact: nothing lost") is not None
