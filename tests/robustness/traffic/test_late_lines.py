"""How many lines can be late depends on the lines and on the epochs that read them."""

from __future__ import annotations

import pytest

from tests.robustness.traffic.ip_count_harness import EPOCH_LINES, LATE, LINES, access_lines
from tests.robustness.traffic.late_lines import count_late, most_late, possibly_late


def lines_at(*seconds: int) -> list[bytes]:
    """Return a line for each second after 12:00; -1 for a line that is invalid."""
    return [
        b"invalid" if at < 0 else b'10.0.0.1 - - [07/Jan/2026:12:00:%02d +0000] "GET /"' % at
        for at in seconds
    ]


def test_a_line_is_late_two_epochs_after_the_one_that_closed_its_window() -> None:
    """Spark drops rows by the watermark of the epoch before: SPARK-40925."""
    assert count_late(lines_at(10, 0), [1]) == 0
    assert count_late(lines_at(10, 11, 0), [1, 1]) == 1
    assert count_late(lines_at(10, 11, 0), [2]) == 0


@pytest.mark.parametrize(("newest", "late"), [(9, 0), (10, 1)])
def test_a_window_is_closed_when_the_newest_event_is_its_end_and_the_lateness(
    newest: int, late: int
) -> None:
    assert count_late(lines_at(newest, 0, 0), [1, 1]) == late


def test_an_invalid_line_is_not_late_and_closes_no_window() -> None:
    assert count_late(lines_at(10, -1, -1), [1, 1]) == 0
    assert count_late(lines_at(-1, -1, 0), [1, 1]) == 0


@pytest.mark.parametrize("rest", [[], [EPOCH_LINES] * 3])
def test_the_lines_of_the_scenarios_have_as_many_late_ones_as_their_constant_says(
    rest: list[int],
) -> None:
    assert count_late(access_lines(), [EPOCH_LINES] * 3 + rest) == LATE
    assert count_late(access_lines(), [LINES]) == 0


def test_the_possible_numbers_include_that_of_each_split() -> None:
    possible = possibly_late(access_lines(), epoch_lines=EPOCH_LINES)
    assert possible == range(LATE, 25)
    splits = [[EPOCH_LINES] * 6, [1] * (LINES - 1), [50, 199, 1] * 4, [150] * 8]
    assert {count_late(access_lines(), split) for split in splits} <= set(possible)


def test_without_a_limit_of_an_epoch_no_line_need_be_late() -> None:
    assert possibly_late(access_lines()) == range(25)


def test_lines_that_were_sent_together_may_close_the_windows_of_each_other() -> None:
    assert most_late([lines_at(0, 10)]) == 1
    assert most_late([lines_at(0), lines_at(10)]) == 0
