"""What grows in a workload of growth is the only thing that differs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.protocol.record import Chunk, EpochRecord, SinkBinding
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import read_report
from sluicegate.storage.object_store import LocalObjectStore
from tests.bench import growth
from tests.bench.child import RunFailed
from tests.bench.start_time import extend_log


def test_partitions_grow_for_each_number_of_cores() -> None:
    workloads = growth.partition_workloads((1, 2))
    assert [(w.cores, w.partitions) for w in workloads] == [
        (cores, partitions) for cores in (1, 2) for partitions in growth.PARTITION_COUNTS
    ]
    assert {replace(w, name="", cores=0, partitions=0) for w in workloads} == {
        replace(workloads[0], name="", cores=0, partitions=0)
    }


def test_executors_grow_with_one_thread_each() -> None:
    workloads = growth.executor_workloads()
    assert [(w.executors, w.cores) for w in workloads] == [
        (executors, 1) for executors in growth.EXECUTOR_COUNTS
    ]


def test_as_many_epochs_are_measured_for_each_size_of_the_state() -> None:
    measured = {
        w.records // w.epoch_records - w.warm_up_epochs
        for w in growth.state_workloads(many_keys=True)
        if w.keys >= w.epoch_records * 2
    }
    assert measured == {20}


def test_many_keys_are_an_option() -> None:
    keys = [w.keys for w in growth.state_workloads()]
    assert growth.MANY_KEYS not in keys
    assert [w.keys for w in growth.state_workloads(many_keys=True)] == [*keys, growth.MANY_KEYS]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return a checkpoint with one epoch."""
    store, offsets = LocalObjectStore(tmp_path), b"v1\n{}\n{}"
    store.put("offsets/0", [offsets])
    store.put("commits/0", [b"v1\n{}"])
    record = EpochRecord(
        lineage="l",
        job="bench",
        epoch=0,
        attempt="a" * 16,
        delivery="exactly-once",
        offsets_digest=hashlib.sha256(offsets).hexdigest(),
        sinks={"kafka.t": SinkBinding("kafka", "topic t", 1, "l/kafka.t")},
        prev={},
        chunks=(Chunk("kafka.t", 0, (0, 0), 1, 1, hashlib.sha256(b"x").hexdigest(), inline=b"x"),),
    )
    StoredEpochLog(store).create(record)
    return tmp_path


def test_a_log_is_extended_to_its_length(checkpoint: Path) -> None:
    assert extend_log(checkpoint, 12) == 12
    store = LocalObjectStore(checkpoint)
    assert StoredEpochLog(store).epochs() == list(range(12))
    assert store.read("offsets/11") == store.read("offsets/0")
    assert store.read("commits/11") == store.read("commits/0")
    assert read_report(store, 11) is not None


def test_the_written_epochs_keep_the_markers_of_the_last_rows(checkpoint: Path) -> None:
    extend_log(checkpoint, 12)
    log = StoredEpochLog(LocalObjectStore(checkpoint))
    first, last = log.read(0), log.read(11)
    assert first is not None
    assert last is not None
    assert last.chain() == first.chain()
    assert not last.chunks


def test_a_checkpoint_without_a_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="no record"):
        extend_log(tmp_path, 12)
