"""When offsets of the sources are committed, and what a failed commit does; without brokers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from sluicegate import failpoints
from sluicegate.errors import SettingsInvalid, StageFailed
from sluicegate.metrics import DriverMetrics
from sluicegate.settings.epoch import EpochSettings
from sluicegate.sinks.kafka.connection import group_id
from sluicegate.spark.apply import close_writers
from sluicegate.spark.query_execution import KafkaSource
from sluicegate.spark.source_offsets import CommitFailed, Partition, SourceOffsets, source_group
from sluicegate.storage.lineage import new_lineage_id
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import runner
from tests.waiting import wait_until

DEADLINE_S = 10.0


def source(number: int = 1, **ends: int) -> KafkaSource:
    """Return a source of the topic `t`, with its ends as `p0=5`."""
    offsets = {"t": {name[1:]: end for name, end in ends.items()}}
    return KafkaSource(number, None, offsets, offsets)


class Group:
    """A consumer group in memory.

    Args:
        errors: raised by the next commits, one each; None: the commit succeeds.
        silent: the brokers do not answer until `answer` is set.
    """

    def __init__(self, *errors: Exception | None, silent: bool = False) -> None:
        self.commits: list[dict[str, int]] = []
        self.called, self.answer, self.closed = threading.Event(), threading.Event(), False
        self._errors = list(errors)
        if not silent:
            self.answer.set()

    def commit(self, source: KafkaSource, offsets: Mapping[Partition, int]) -> None:
        self.called.set()
        assert self.answer.wait(DEADLINE_S)
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        self.commits.append({f"{source.number}/{t}-{p}": offsets[t, p] for t, p in offsets})

    def close(self) -> None:
        self.closed = True


def offsets_of(group: Group, **seconds: float) -> tuple[SourceOffsets, DriverMetrics]:
    """Return the tested object, which waits between commits only where a test says so."""
    metrics = DriverMetrics("clicks")
    times = {"pause_s": 0.0, "retry_s": 0.0, "repeat_s": 3600.0, **seconds}
    return SourceOffsets("sluicegate.clicks", group, metrics, **times), metrics


def failures(metrics: DriverMetrics, reason: str) -> float | None:
    name = "sluicegate_source_offset_commit_failures_total"
    return metrics.registry.get_sample_value(name, {"job": "clicks", "reason": reason})


def test_only_the_newest_offsets_wait_for_slow_brokers() -> None:
    group = Group(silent=True)
    offsets, _ = offsets_of(group)
    offsets.applied([source(p0=1)])
    assert group.called.wait(DEADLINE_S)
    for end in range(2, 100):
        offsets.applied([source(p0=end)])
    group.answer.set()
    offsets.close()
    assert group.commits == [{"1/t-0": 1}, {"1/t-0": 99}]


def test_only_changed_and_new_partitions_are_committed() -> None:
    group = Group()
    offsets, _ = offsets_of(group)
    offsets.applied([source(p0=5, p1=7)])
    wait_until(lambda: group.commits, seconds=DEADLINE_S)
    offsets.applied([source(p0=6, p1=7, p2=1)])
    offsets.close()
    assert group.commits == [{"1/t-0": 5, "1/t-1": 7}, {"1/t-0": 6, "1/t-2": 1}]


def test_an_epoch_without_input_from_a_source_leaves_its_offsets() -> None:
    group = Group(silent=True)
    offsets, _ = offsets_of(group)
    offsets.applied([source(1, p0=1), source(2, p0=10)])
    offsets.applied([source(2, p0=11)])
    group.answer.set()
    offsets.close()
    assert {key: end for commit in group.commits for key, end in commit.items()} == {
        "1/t-0": 1,
        "2/t-0": 11,
    }


def test_the_last_offsets_are_committed_at_the_end_however_long_the_pause() -> None:
    group = Group()
    offsets, _ = offsets_of(group, pause_s=3600.0)
    offsets.applied([source(p0=1)])
    wait_until(lambda: group.commits, seconds=DEADLINE_S)
    offsets.applied([source(p0=2)])
    offsets.close()
    assert group.commits == [{"1/t-0": 1}, {"1/t-0": 2}]
    assert group.closed


def test_the_end_does_not_wait_for_silent_brokers(caplog: pytest.LogCaptureFixture) -> None:
    group = Group(silent=True)
    offsets, metrics = offsets_of(group)
    offsets.applied([source(p0=1)])
    started_s = time.monotonic()
    offsets.close(timeout_s=0.1)
    assert time.monotonic() - started_s < 1
    assert failures(metrics, "NoAnswer") == 1
    assert "no answer within 0.1 s" in caplog.text
    group.answer.set()
    wait_until(lambda: group.closed, seconds=DEADLINE_S)


def test_a_refusal_is_one_warning_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    refused = CommitFailed("GroupAuthorizationException", "Not authorized to access group")
    group = Group(refused, refused, CommitFailed("TimeoutException", "timed out"), refused)
    offsets, metrics = offsets_of(group)
    with caplog.at_level(logging.WARNING):
        offsets.applied([source(p0=1)])
        wait_until(lambda: group.commits, seconds=DEADLINE_S)
        offsets.close()
    first, second = caplog.messages
    assert "not committed to the group sluicegate.clicks" in first
    assert "data: not affected" in first
    assert "do: grant the source's user Read on the group" in first
    assert "TimeoutException" in second
    assert failures(metrics, "GroupAuthorizationException") == 3
    assert group.commits == [{"1/t-0": 1}]


def test_an_unexpected_error_neither_ends_the_thread_nor_the_other_sources(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group(ConnectionRefusedError("the JVM is dead"))
    offsets, metrics = offsets_of(group, retry_s=3600.0)
    offsets.applied([source(1, p0=1), source(2, p0=2)])
    wait_until(lambda: group.commits, seconds=DEADLINE_S)
    assert group.commits == [{"2/t-0": 2}]
    offsets.close()
    assert group.commits == [{"2/t-0": 2}, {"1/t-0": 1}]
    assert "the JVM is dead" in caplog.text
    assert failures(metrics, "ConnectionRefusedError") == 1


def test_offsets_that_do_not_change_are_committed_again() -> None:
    """Brokers delete the offsets of a group without members after offsets.retention.minutes."""
    group = Group()
    offsets, _ = offsets_of(group, repeat_s=0.01)
    offsets.applied([source(p0=1)])
    wait_until(lambda: len(group.commits) > 2, seconds=DEADLINE_S)
    offsets.close()
    assert group.commits[:2] == [{"1/t-0": 1}] * 2


def test_a_job_without_kafka_sources_has_no_thread() -> None:
    before = threading.active_count()
    offsets, _ = offsets_of(Group())
    offsets.applied([])
    assert threading.active_count() == before
    offsets.close()


@pytest.mark.parametrize("overlap", [False, True], ids=["at once", "overlapped"])
def test_an_epoch_is_committed_when_every_sink_has_it(tmp_path: Path, *, overlap: bool) -> None:
    """And not before: the first driver decides the epoch and fails, the second one applies it."""
    store = LocalObjectStore(tmp_path)
    store.create("offsets/0", b"v1\n{}\n{}")

    def run() -> list[dict[str, int]]:
        group = Group()
        offsets, _ = offsets_of(group)
        running = runner(store, overlap=overlap, source_offsets=offsets, sources=[source(p0=3)])
        try:
            running.run(cast("Any", None), 0)
            running.background.wait()
        except (failpoints.FailpointHit, StageFailed):
            pass
        finally:
            running.background.close()
            close_writers(tmp_path.name)
            offsets.close()
        return group.commits

    failpoints.arm("before-apply@0=raise")
    try:
        assert run() == []
    finally:
        failpoints.arm("")
    assert run() == [{"1/t-0": 3}]


def test_the_group_has_the_name_of_the_job_unless_it_is_set_or_not_wanted() -> None:
    assert source_group("clicks", EpochSettings()) == "sluicegate.clicks"
    assert source_group("clicks", EpochSettings(source_group="lag")) == "lag"
    assert not source_group("clicks", EpochSettings(commit_source_offsets=False, source_group="x"))


def test_a_group_of_markers_is_refused() -> None:
    """Offsets of a source on it could move a marker, if the source were the topic of markers."""
    with pytest.raises(SettingsInvalid, match="has a name of sinks' markers"):
        source_group("", EpochSettings(source_group=group_id(new_lineage_id(), "kafka.orders")))
