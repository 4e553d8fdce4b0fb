"""Reports of epochs: information only, whatever is stored under their names."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.errors import StoreUnavailable
from sluicegate.protocol.record import Chunk, DecidedEpoch, EpochRecord, SinkBinding
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import (
    EpochReport,
    SinkReport,
    TimedStep,
    read_report,
    write_report,
    writer_steps,
)
from sluicegate.storage.object_store import LocalObjectStore

NAME = "epochs/3.report"
STEPS = (
    TimedStep.of_ns("stage", 1_000_000_000, 1_250_000_000),
    TimedStep.of_ns("apply", 1_260_000_000, 1_270_000_000, "a"),
    TimedStep.of_ns("commit", 1_285_000_000, 1_290_500_000, "a", 1),
    TimedStep.of_ns("apply", 1_280_000_000, 1_291_000_000, "a"),
)


def record(epoch: int = 3) -> EpochRecord:
    """Return a record of five rows for one of two sinks."""
    return EpochRecord(
        lineage="l",
        job="j",
        epoch=epoch,
        attempt="three",
        delivery="exactly-once",
        offsets_digest="d",
        sinks={sink: SinkBinding("memory", sink, 1, sink) for sink in ("a", "b")},
        prev={},
        chunks=(Chunk("a", 1, (0, 0), 5, 4, "h", name="staging/3/three/a"),),
        counts={"rows_in": 7, "refused": 2, "dead_letters_null": 2},
    )


def report(epoch: int = 3, *, replayed: bool = False) -> EpochReport:
    """Return the report of an epoch whose first sink was tried twice."""
    return EpochReport.of(DecidedEpoch(record(epoch), replayed=replayed), STEPS)


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path)


def test_a_report_reads_back_as_it_was_written(store: LocalObjectStore) -> None:
    whole = replace(report(), thrown_away=2, waits_since_ms=1234.568)
    write_report(store, whole)
    assert read_report(store, 3) == whole


def test_a_report_counts_rows_tries_and_dead_letters() -> None:
    assert report().sinks == {"a": SinkReport(5, 2), "b": SinkReport(0, 0)}
    assert (report().rows_in, report().dead_letters) == (7, {"null": 2})


def test_a_report_says_what_failed_before_the_epoch_and_since_when_input_waits() -> None:
    decided = DecidedEpoch(record(), replayed=False)
    of = EpochReport.of(decided, STEPS, thrown_away=2, waits_since_s=1.2345678)
    assert (of.thrown_away, of.waits_since_ms) == (2, 1234.568)
    assert (report().thrown_away, report().waits_since_ms) == (0, 0.0), "nothing did"


def test_of_parts_that_run_at_once_the_longest_counts_with_all_its_tries() -> None:
    tries = ("write", "a", 0, 3.0), ("write", "a", 0, 4.0)
    others = ("write", "a", 1, 6.0), ("commit", "a", 1, 2.0), ("write", "b", 0, 9.0)
    whole = ("apply", "a", None, 50.0)
    steps = [
        TimedStep(name, 0.0, ms, sink, part) for name, sink, part, ms in (*tries, *others, whole)
    ]
    assert writer_steps(steps) == {("a", "write"): 7.0, ("a", "commit"): 2.0, ("b", "write"): 9.0}


def test_a_report_has_all_steps_or_those_of_whole_sinks() -> None:
    assert report().steps == STEPS
    assert report().without_parts().steps == (*STEPS[:2], STEPS[3])


def test_a_step_is_measured_in_milliseconds() -> None:
    """To the microsecond; nanoseconds since 1970 do not fit into a float."""
    begin_ns = 1_700_000_000_123_456_789
    step = TimedStep.of_ns("stage", begin_ns, begin_ns + 5_000_000_499_499)
    assert step == TimedStep("stage", 1_700_000_000_123.457, 5_000_000.499)


def test_a_report_without_a_count_of_rows_reads_back(store: LocalObjectStore) -> None:
    uncounted = replace(report(), rows_in=None)
    write_report(store, uncounted)
    assert read_report(store, 3) == uncounted


@pytest.mark.parametrize("field", ["waits_since_ms", "thrown_away"])
def test_a_report_of_a_version_without_a_field_reads_back(
    store: LocalObjectStore, field: str
) -> None:
    fields = json.loads(report().as_json())
    del fields[field]
    store.create(NAME, json.dumps(fields).encode())
    assert read_report(store, 3) == report()


def test_a_replay_replaces_the_report(store: LocalObjectStore) -> None:
    write_report(store, report())
    write_report(store, report(replayed=True))
    assert read_report(store, 3) == report(replayed=True)


def test_an_epoch_without_a_report_has_none(store: LocalObjectStore) -> None:
    assert read_report(store, 3) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        report().as_json().encode()[:-1],
        report().as_json().replace("1000.0", "NaN").encode(),
        report().as_json().replace('"epoch":3', '"epoch":Infinity').encode(),
        json.dumps(json.loads(report().as_json()) | {"sinks": []}).encode(),
        json.dumps(json.loads(report().as_json()) | {"steps": 1}).encode(),
    ],
)
def test_a_damaged_report_is_a_value_error(store: LocalObjectStore, content: bytes) -> None:
    store.create(NAME, content)
    with pytest.raises(ValueError, match="damaged or of another version"):
        read_report(store, 3)


class FullStore(LocalObjectStore):
    """A store that writes nothing."""

    def put(self, name: str, content: Iterable[bytes]) -> None:
        raise StoreUnavailable(f"the disk is full: {name}, {list(content)}")


def test_a_report_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sluicegate.epoch"):
        write_report(FullStore(tmp_path), report())
    assert "report of epoch 3 was not written; the epoch is in every sink" in caplog.text


def test_the_epoch_log_mistakes_no_report_for_a_record_or_a_mark(store: LocalObjectStore) -> None:
    """A mark is a decision: it lets a savepoint be taken, a seal be created, a sink be removed."""
    log = StoredEpochLog(store)
    log.create(record(2))
    write_report(store, report())
    assert (log.epochs(), log.newest(), log.read(3)) == ([2], 2, None)
    assert not log.is_marked_applied(3)


def test_a_report_is_pruned_with_its_epoch(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store, retained=2)
    for epoch in range(5):
        log.create(record(epoch))
        write_report(store, report(epoch))
    log.prune(4)
    assert sorted(store.names("")) == ["epochs/3", "epochs/3.report", "epochs/4", "epochs/4.report"]
