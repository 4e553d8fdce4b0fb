"""Since when the oldest input waits that some sink lacks."""

from __future__ import annotations

from sluicegate.oldest_input import _MOST_PLANS, OldestInput
from sluicegate.spark.query_execution import KafkaSource


def source(end: dict[str, int], latest: dict[str, int], number: int = 1) -> KafkaSource:
    return KafkaSource(number, None, {"t": end}, {"t": latest})


def ran(oldest: OldestInput, epoch: int, at_s: float, *sources: KafkaSource) -> None:
    oldest.planned(epoch, at_s, sources)
    oldest.applied(epoch, sources)


def test_the_input_of_an_epoch_waits_from_its_plan_until_every_sink_has_it() -> None:
    oldest, read = OldestInput(), source({"0": 5}, {"0": 5})
    oldest.planned(0, 100.0, [read])
    assert oldest.since_s == 100.0
    oldest.applied(0, [read])
    assert oldest.since_s is None


def test_an_epoch_of_a_source_without_offsets_waits_as_well() -> None:
    oldest = OldestInput()
    oldest.planned(0, 100.0, [])
    oldest.planned(1, 200.0, [])
    oldest.applied(0, [])
    assert oldest.since_s == 200.0, (
        "with overlap, an epoch is planned before the last one is applied"
    )


def test_records_that_an_epoch_leaves_wait_since_the_first_plan_that_saw_them() -> None:
    oldest = OldestInput()
    ran(oldest, 0, 100.0, source({"0": 10}, {"0": 30}))
    ran(oldest, 1, 200.0, source({"0": 20}, {"0": 35}))
    assert oldest.since_s == 100.0
    ran(oldest, 2, 300.0, source({"0": 30}, {"0": 35}))
    assert oldest.since_s == 200.0, "records 30 to 34 came between the first two plans"
    ran(oldest, 3, 400.0, source({"0": 35}, {"0": 35}))
    assert oldest.since_s is None


def test_one_partition_that_is_left_out_keeps_the_job_waiting() -> None:
    oldest = OldestInput()
    ran(oldest, 0, 100.0, source({"0": 10}, {"0": 10, "1": 1}))
    assert oldest.since_s == 100.0, "a new partition counts from its start"
    ran(oldest, 1, 200.0, source({"0": 10, "1": 1}, {"0": 10, "1": 1}))
    assert oldest.since_s is None


def test_a_source_without_new_records_changes_nothing_of_another_one() -> None:
    """Spark's plan of an epoch has only the sources that have input for it."""
    oldest = OldestInput()
    first, second = source({"0": 5}, {"0": 8}), source({"0": 7}, {"0": 7}, number=2)
    ran(oldest, 0, 100.0, first)
    ran(oldest, 1, 200.0, second)
    assert oldest.since_s == 100.0


def test_records_of_a_topic_that_was_created_again_stop_waiting() -> None:
    oldest = OldestInput()
    ran(oldest, 0, 100.0, source({"0": 10}, {"0": 1000, "1": 5}))
    ran(oldest, 1, 200.0, source({"0": 3}, {"0": 3}))
    assert oldest.since_s is None


def test_a_long_backlog_needs_bounded_memory_and_its_age_stays_close() -> None:
    oldest, epochs = OldestInput(), 10 * _MOST_PLANS
    for epoch in range(epochs):
        ran(oldest, epoch, float(epoch), source({"0": epoch}, {"0": 2 * epoch + 1}))
    assert len(oldest._plans) <= _MOST_PLANS
    since_s, exact_s = oldest.since_s, (epochs - 1) / 2
    assert since_s is not None
    assert 0 <= exact_s - since_s < epochs / 20
