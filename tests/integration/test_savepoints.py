"""Savepoints of a real stateful query, in this process, on files and memory: both state stores.

The job counts hits by address without a window, so each epoch tells every total anew: state that
is lost, repeated or of the wrong epoch shows in the next row. A job that is killed while a savepoint
is taken, and one with Kafka and MySQL, are in tests/faults.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate.checkpoint.requests import ask, await_answer
from sluicegate.checkpoint.restoring import Wish, restore
from sluicegate.checkpoint.savepoints import Savepoint, take
from sluicegate.protocol.errors import (
    Fenced,
    SavepointFailed,
    SavepointRefused,
    Sealed,
    SinksOfParent,
)
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.query import EpochsQuery, epochs
from sluicegate.spark.session import RUNTIME_SETTINGS
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import open_objects
from tests.faults.streams import Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SNAPSHOT = {"rocksdb": ".zip", "hdfs": ".snapshot"}
"""How a snapshot of the state is named, by backend."""

PATIENCE_S = 240.0
HITS = 3
"""Of each address, in each epoch."""


SPARK_SETTINGS = {"spark.sql.streaming.stateStore.maintenanceInterval": "500ms"}
"""State stores make snapshots all the time."""


@pytest.fixture(params=list(SNAPSHOT))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a state backend that makes a snapshot every few versions."""
    few = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
    monkeypatch.setitem(RUNTIME_SETTINGS, few, "3")
    return str(request.param)


@pytest.fixture
def hits(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """Give a stream of hits of two addresses, no file of it written."""
    yield Stream(spark, tmp_path, "ip string")
    for query in spark.streams.active:  # of a test that has failed
        query.stop()


def add(stream: Stream, count: int) -> None:
    """Add files, an epoch each."""
    stream.add(*[[{"ip": f"10.0.0.{i % 2}"} for i in range(2 * HITS)] for _ in range(count)])


def start(
    stream: Stream,
    checkpoint: str,
    store: str,
    interval: str = AVAILABLE_NOW,
    backend: str = "rocksdb",
) -> EpochsQuery:
    """Start the job on a checkpoint, into a store."""
    counts = stream.rows.groupBy("ip").agg(F.count("*").alias("hits"))
    return epochs(
        counts,
        sinks=[MemorySink(stream.store(store))],
        name="counts",
        checkpoint=checkpoint,
        settings=EpochSettings(interval=interval, min_pause_ms=0, state_backend=backend),
    ).start()


def run(stream: Stream, checkpoint: str, store: str, backend: str = "rocksdb") -> None:
    """Run the job over all files that are there."""
    assert start(stream, checkpoint, store, backend=backend).await_end(PATIENCE_S)


def wait(query: EpochsQuery, there: Callable[[], bool]) -> None:
    """Wait until something is there, while the query goes on."""
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        assert not query.await_end(0.1)
        assert time.monotonic() < deadline


def totals(stream: Stream, store: str) -> list[int]:
    """Return the totals of one address that a store was told, in order; both must be told alike."""
    told = [[r["hits"] for r in stream.seen(store) if r["ip"] == f"10.0.0.{i}"] for i in range(2)]
    assert told[0] == told[1]
    return told[0]


def exact(first: int, last: int) -> list[int]:
    """Return the totals of the epochs from `first` to `last`, each told once."""
    return [HITS * (epoch + 1) for epoch in range(first, last + 1)]


def sealed(stream: Stream, backend: str = "rocksdb") -> Savepoint:
    """Run three epochs, and take a savepoint that moves the job."""
    add(stream, 3)
    run(stream, str(stream.checkpoint), "out", backend)
    return take(str(stream.checkpoint), str(stream.folder / "savepoints"), seal=True)


# --- of a running job ------------------------------------------------------------------------------


def test_a_savepoint_of_a_running_job_goes_on_with_exact_counts(hits: Stream, backend: str) -> None:
    """Three are taken while it runs; one is restored and run beside it, into another store."""
    add(hits, 8)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds", backend)
    snapshots = (hits.checkpoint / "state").glob
    wait(query, lambda: (hits.newest() or 0) >= 4 and any(snapshots(f"0/*/*{SNAPSHOT[backend]}")))
    taken = [take(str(hits.checkpoint), str(hits.folder / "savepoints")) for _ in range(3)]
    wait(query, (hits.checkpoint / "commits" / "7").exists)
    manifest = taken[-1].manifest
    assert manifest is not None
    assert not manifest.sealed
    assert SNAPSHOT[backend] in {Path(name).suffix for name in manifest.files}
    branch = str(hits.folder / "branch")
    restore(taken[-1].url, branch)
    add(hits, 1)
    # Spark wants the names of the queries of one session to differ
    run(replace(hits, spark=hits.spark.newSession()), branch, "branch", backend)
    # what the original had read ahead of the savepoint, the branch may take in one epoch
    told = totals(hits, "branch")
    assert told[-1:] == exact(8, 8)
    assert told == sorted(set(told) & set(exact(manifest.epoch + 1, 8)))
    wait(query, (hits.checkpoint / "commits" / "8").exists)
    query.stop()
    assert totals(hits, "out") == exact(0, 8)


def test_a_branch_into_the_stores_of_the_original_is_refused_unless_told(hits: Stream) -> None:
    add(hits, 3)
    run(hits, str(hits.checkpoint), "out")
    made = take(str(hits.checkpoint), str(hits.folder / "savepoints"))
    add(hits, 2)
    branch, told = str(hits.folder / "branch"), str(hits.folder / "told")
    restore(made.url, branch)
    with pytest.raises(SinksOfParent):
        start(hits, branch, "out")
    assert totals(hits, "out") == exact(0, 2)
    restore(made.url, told, Wish(same_sinks=True))
    run(hits, told, "out")
    assert totals(hits, "out") == exact(0, 4)


# --- a move ----------------------------------------------------------------------------------------


def test_a_moved_job_goes_on_into_its_sinks_exactly(hits: Stream, backend: str) -> None:
    made = sealed(hits, backend)
    moved = str(hits.folder / "moved")
    restore(made.url, moved)
    add(hits, 4)
    run(hits, moved, "out", backend)
    assert totals(hits, "out") == exact(0, 6)


def test_the_sealed_parent_writes_nothing_and_says_so(hits: Stream) -> None:
    sealed(hits)
    add(hits, 2)
    with pytest.raises(Sealed, match=r"sealed after epoch 2: moved by savepoint"):
        run(hits, str(hits.checkpoint), "out")
    assert totals(hits, "out") == exact(0, 2)


def test_a_parent_that_is_sealed_while_it_runs_stops_at_its_next_decision(hits: Stream) -> None:
    add(hits, 2)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    wait(query, (hits.checkpoint / "commits" / "1").exists)
    take(str(hits.checkpoint), str(hits.folder / "savepoints"), seal=True)
    add(hits, 2)
    with pytest.raises(Sealed):
        query.await_end(PATIENCE_S)
    assert totals(hits, "out") == exact(0, 1)


def test_a_sealed_savepoint_moves_its_job_once(hits: Stream) -> None:
    """The second time it may only become a branch, which keeps away from the parent's sinks."""
    made = sealed(hits)
    restore(made.url, str(hits.folder / "moved"))
    with pytest.raises(SavepointRefused, match="restored into"):
        restore(made.url, str(hits.folder / "again"))
    branch = str(hits.folder / "branch")
    restore(made.url, branch, Wish(branch=True))
    add(hits, 1)
    with pytest.raises(SinksOfParent):
        start(hits, branch, "out")
    run(hits, branch, "other")
    assert totals(hits, "other") == exact(3, 3)


def test_a_second_successor_from_a_copied_savepoint_is_refused_by_the_sink(hits: Stream) -> None:
    """What the savepoint does not know, the parent's marker in the sink does."""
    made = sealed(hits)
    copied = str(hits.folder / "copied")
    shutil.copytree(made.url, copied)
    for savepoint, checkpoint in ((made.url, "moved"), (copied, "second")):
        restore(savepoint, str(hits.folder / checkpoint))
    add(hits, 1)
    run(hits, str(hits.folder / "moved"), "out")
    with pytest.raises(Fenced, match="taken over by lineage"):
        start(hits, str(hits.folder / "second"), "out")
    assert totals(hits, "out") == exact(0, 3)


def test_a_moved_job_can_be_moved_again(hits: Stream) -> None:
    made, place = sealed(hits), ""
    for turn in range(2):
        place = str(hits.folder / f"moved{turn}")
        restore(made.url, place)
        add(hits, 2)
        run(hits, place, "out")
        made = take(place, str(hits.folder / "savepoints"), seal=True)
    assert totals(hits, "out") == exact(0, 6)
    assert made.manifest is not None
    assert made.manifest.ancestry.rows == {f"memory.{hits.store('out')}": 2 * 7}


# --- asked through the checkpoint ------------------------------------------------------------------


def test_a_running_job_that_is_asked_to_stop_takes_its_savepoint_and_answers(hits: Stream) -> None:
    add(hits, 3)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    objects = open_objects(str(hits.checkpoint))
    wait(query, lambda: (hits.newest() or 0) >= 2)
    folder = str(hits.folder / "savepoints")
    request = ask(objects, query.lineage, savepoint=folder, hold_s=PATIENCE_S)
    assert query.await_end(PATIENCE_S)
    answer = await_answer(objects, request, patience_s=5.0)
    assert answer is not None
    assert answer.stopped
    seal = StoredEpochLog(objects).seal()
    assert seal is not None
    assert seal.epoch == 3
    moved = str(hits.folder / "moved")
    assert restore(answer.savepoint, moved).first_epoch == 3
    add(hits, 1)
    run(hits, moved, "out")
    assert totals(hits, "out") == exact(0, 3)


def test_a_savepoint_that_cannot_be_taken_leaves_the_job_as_it_was(hits: Stream) -> None:
    """The driver ends with the error, unsealed, and may be started again."""
    add(hits, 1)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    objects = open_objects(str(hits.checkpoint))
    inside = str(hits.checkpoint / "inside")
    request = ask(objects, query.lineage, savepoint=inside, hold_s=PATIENCE_S)
    with pytest.raises(SavepointFailed):
        query.await_end(PATIENCE_S)
    answer = await_answer(objects, request, patience_s=5.0)
    assert answer is not None
    assert not answer.stopped
    run(hits, str(hits.checkpoint), "out")
    assert totals(hits, "out") == exact(0, 0)


def test_a_request_that_has_run_out_does_not_stop_a_later_start(hits: Stream) -> None:
    add(hits, 1)
    run(hits, str(hits.checkpoint), "out")
    objects = open_objects(str(hits.checkpoint))
    lineage = read_lineage(objects)
    assert lineage is not None
    request = ask(objects, lineage.id, hold_s=0.0)
    assert await_answer(objects, request, patience_s=5.0) is None
    ask(objects, lineage.id, hold_s=0.0)  # its asker was killed
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    assert not query.await_end(1.5)
    query.stop()
