"""What the readers of a long run measure."""

from __future__ import annotations

from tests.robustness.validate.readers import Seen, Waits

PARTITION = ("topic", 0)
OTHER = ("topic", 1)


def test_a_reader_waits_while_the_stable_offset_stands_still_below_the_end() -> None:
    waits = Waits()
    for now, stable, end in ((0, 5, 5), (1, 5, 9), (4, 5, 12), (6, 12, 12)):
        waits.see(PARTITION, stable, end, now)
    assert waits.longest(0, 10) == 5


def test_transactions_that_follow_each_other_are_waited_for_one_by_one() -> None:
    waits = Waits()
    for now, stable, end in ((0, 5, 9), (2, 9, 12), (5, 12, 12)):
        waits.see(PARTITION, stable, end, now)
    assert waits.longest(0, 10) == 3


def test_a_wait_that_goes_on_counts() -> None:
    waits = Waits()
    waits.see(PARTITION, 5, 9, 1)
    waits.see(PARTITION, 5, 9, 8)
    assert waits.longest(0, 10) == 7


def test_waits_of_another_time_and_partition_do_not_count() -> None:
    waits = Waits()
    for now, stable, end in ((0, 5, 9), (3, 9, 9)):
        waits.see(PARTITION, stable, end, now)
    waits.see(OTHER, 7, 7, 3)
    assert waits.longest(4, 10) == 0


def test_rows_appear_when_the_amount_grows() -> None:
    seen = Seen()
    for now, amount in ((1, 10), (2, 10), (3, 12)):
        seen.see(amount, now)
    assert (seen.first_after(0), seen.first_after(1), seen.first_after(3)) == (1, 3, None)


def test_rows_that_a_replica_gets_again_are_not_new() -> None:
    seen = Seen()
    for now, amount in ((1, 10), (2, 7), (3, 9), (4, 10), (5, 11)):
        seen.see(amount, now)
    assert seen.first_after(1) == 5


def test_what_a_wait_lasted_before_a_time_span_does_not_count() -> None:
    """It belongs to the fault before."""
    waits = Waits()
    for now, stable in ((0, 5), (20, 5), (23, 9)):
        waits.see(PARTITION, stable, 9, now)
    assert waits.longest(20, 30) == 3
