"""Savepoints of a real stateful query in this process, on files and memory, with both state stores.

The job counts hits by address without a window, so each epoch emits every total again, and state that
is lost, repeated or of the wrong epoch shows in the next row. Killed jobs, and a job with Kafka and
MySQL, are in tests/robustness.
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

from sluicegate.errors import Fenced, SavepointFailed, SavepointRefused, Sealed, SinksStillOwned
from sluicegate.savepoints.catalog import Savepoint
from sluicegate.savepoints.stop_request import await_answer, request_stop
from sluicegate.savepoints.takeover import successor
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.epochs import epochs
from sluicegate.spark.outputs import DEAD_LETTER_SCHEMA
from sluicegate.spark.query import EpochsQuery
from sluicegate.spark.session import RUNTIME_SETTINGS
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.memory_streams import Stream
from tests.unit.savepoints.builders import restore, take

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SNAPSHOT = {"rocksdb": ".zip", "hdfs": ".snapshot"}
"""Suffix of a state snapshot, by backend."""

TIMEOUT_S = 240.0
HITS = 3
"""Hits of each address in each epoch."""


SPARK_SETTINGS = {"spark.sql.streaming.stateStore.maintenanceInterval": "500ms"}
"""State stores create snapshots all the time."""


@pytest.fixture(params=list(SNAPSHOT))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a state backend that creates a snapshot every few versions."""
    setting = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
    monkeypatch.setitem(RUNTIME_SETTINGS, setting, "3")
    return str(request.param)


@pytest.fixture
def hits(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """Return a stream of hits of two addresses, without input yet."""
    yield Stream(spark, tmp_path, "ip string")
    for query in spark.streams.active:  # left by a failed test
        query.stop()


def add_epochs(stream: Stream, count: int) -> None:
    """Add files, one per epoch."""
    stream.add(*[[{"ip": f"10.0.0.{i % 2}"} for i in range(2 * HITS)] for _ in range(count)])


def start(
    stream: Stream,
    checkpoint: str,
    store: str,
    interval: str = AVAILABLE_NOW,
    backend: str = "rocksdb",
) -> EpochsQuery:
    """Start the job on a checkpoint and an in-memory sink."""
    counts = stream.rows.groupBy("ip").agg(F.count("*").alias("hits"))
    return epochs(
        counts,
        sinks=[MemorySink(stream.store(store))],
        name="counts",
        checkpoint=checkpoint,
        settings=EpochSettings(interval=interval, min_pause_ms=0, state_backend=backend),
    ).start()


def run(stream: Stream, checkpoint: str, store: str, backend: str = "rocksdb") -> None:
    """Run the job over all existing files."""
    assert start(stream, checkpoint, store, backend=backend).await_end(TIMEOUT_S)


def wait_while_running(query: EpochsQuery, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, while the query runs."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert not query.await_end(0.1)
        assert time.monotonic() < deadline


def a_savepoint_has_a_snapshot(stream: Stream, backend: str) -> bool:
    """Return whether a savepoint taken now, of epoch 3 or later, has a snapshot of the state.

    It is of the newest decided epoch D or of the one before, which has the versions up to D. The
    snapshot of a newer version is not part of it.
    """
    versions = [
        int(path.stem) for path in (stream.checkpoint / "state").glob(f"0/*/*{SNAPSHOT[backend]}")
    ]
    newest = stream.newest() or 0
    return newest >= 4 and min(versions, default=newest + 1) <= newest


def totals(stream: Stream, store: str) -> list[int]:
    """Return the totals of one address in the order of their epochs; both addresses have the same."""
    emitted = [
        [row["hits"] for row in stream.committed_rows(store) if row["ip"] == f"10.0.0.{i}"]
        for i in range(2)
    ]
    assert emitted[0] == emitted[1]
    return emitted[0]


def expected_totals(first: int, last: int) -> list[int]:
    """Return the totals of the epochs from `first` to `last`, each once."""
    return [HITS * (epoch + 1) for epoch in range(first, last + 1)]


def move_savepoint(stream: Stream, backend: str = "rocksdb") -> Savepoint:
    """Run three epochs and take a savepoint that moves the job."""
    add_epochs(stream, 3)
    run(stream, str(stream.checkpoint), "out", backend)
    return take(str(stream.checkpoint), str(stream.folder / "savepoints"), seal=True)


# --- of a running job ------------------------------------------------------------------------------


def test_a_savepoint_of_a_running_job_continues_with_exact_counts(
    hits: Stream, backend: str
) -> None:
    """Three savepoints are taken while it runs; one is restored and run next to it, onto another sink."""
    count = 12
    add_epochs(hits, count)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds", backend)
    wait_while_running(query, lambda: a_savepoint_has_a_snapshot(hits, backend))
    taken = [take(str(hits.checkpoint), str(hits.folder / "savepoints")) for _ in range(3)]
    wait_while_running(query, (hits.checkpoint / "commits" / str(count - 1)).exists)
    manifest = taken[-1].manifest
    assert manifest is not None
    assert not manifest.sealed
    assert SNAPSHOT[backend] in {Path(name).suffix for name in manifest.files}
    branch = str(hits.folder / "branch")
    restore(taken[-1].url, branch)
    add_epochs(hits, 1)
    # Spark requires different names for the queries of one session
    run(replace(hits, spark=hits.spark.newSession()), branch, "branch", backend)
    # the branch may read in one epoch what the original had read after the savepoint
    emitted = totals(hits, "branch")
    assert emitted[-1:] == expected_totals(count, count)
    assert emitted == sorted(set(emitted) & set(expected_totals(manifest.epoch + 1, count)))
    wait_while_running(query, (hits.checkpoint / "commits" / str(count)).exists)
    query.stop()
    assert totals(hits, "out") == expected_totals(0, count)


def test_a_branch_onto_the_sinks_of_the_original_is_rejected_by_default(hits: Stream) -> None:
    add_epochs(hits, 3)
    run(hits, str(hits.checkpoint), "out")
    savepoint = take(str(hits.checkpoint), str(hits.folder / "savepoints"))
    add_epochs(hits, 2)
    branch, permitted = str(hits.folder / "branch"), str(hits.folder / "allowed")
    restore(savepoint.url, branch)
    with pytest.raises(SinksStillOwned):
        start(hits, branch, "out")
    assert totals(hits, "out") == expected_totals(0, 2)
    restore(savepoint.url, permitted, same_sinks=True)
    run(hits, permitted, "out")
    assert totals(hits, "out") == expected_totals(0, 4)


# --- a move ----------------------------------------------------------------------------------------


def test_a_moved_job_continues_exactly_once_in_its_sinks(hits: Stream, backend: str) -> None:
    savepoint = move_savepoint(hits, backend)
    moved = str(hits.folder / "moved")
    restore(savepoint.url, moved)
    add_epochs(hits, 4)
    run(hits, moved, "out", backend)
    assert totals(hits, "out") == expected_totals(0, 6)


def test_a_sealed_parent_fails_and_writes_nothing(hits: Stream) -> None:
    move_savepoint(hits)
    add_epochs(hits, 2)
    with pytest.raises(Sealed, match=r"sealed after epoch 2: moved by savepoint"):
        run(hits, str(hits.checkpoint), "out")
    assert totals(hits, "out") == expected_totals(0, 2)


def test_a_parent_that_is_sealed_while_it_runs_stops_at_its_next_decision(hits: Stream) -> None:
    add_epochs(hits, 2)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    epoch_log = StoredEpochLog(open_store(str(hits.checkpoint)))
    wait_while_running(query, lambda: epoch_log.is_marked_applied(1))
    take(str(hits.checkpoint), str(hits.folder / "savepoints"), seal=True)
    add_epochs(hits, 2)
    with pytest.raises(Sealed):
        query.await_end(TIMEOUT_S)
    assert totals(hits, "out") == expected_totals(0, 1)


def test_a_sealed_savepoint_moves_its_job_once(hits: Stream) -> None:
    """The second time it can only become a branch, which must not use the parent's sinks."""
    savepoint = move_savepoint(hits)
    restore(savepoint.url, str(hits.folder / "moved"))
    with pytest.raises(SavepointRefused, match="restored into"):
        restore(savepoint.url, str(hits.folder / "again"))
    branch = str(hits.folder / "branch")
    restore(savepoint.url, branch, branch=True)
    add_epochs(hits, 1)
    with pytest.raises(SinksStillOwned):
        start(hits, branch, "out")
    run(hits, branch, "other")
    assert totals(hits, "other") == expected_totals(3, 3)


def test_a_second_successor_from_a_copied_savepoint_is_rejected_by_the_sink(hits: Stream) -> None:
    """The copy does not know the first successor, but the parent's marker in the sink does."""
    savepoint = move_savepoint(hits)
    copied = str(hits.folder / "copied")
    shutil.copytree(savepoint.url, copied)
    for url, checkpoint in ((savepoint.url, "moved"), (copied, "second")):
        restore(url, str(hits.folder / checkpoint))
    add_epochs(hits, 1)
    run(hits, str(hits.folder / "moved"), "out")
    with pytest.raises(Fenced, match="taken over by lineage"):
        start(hits, str(hits.folder / "second"), "out")
    assert totals(hits, "out") == expected_totals(0, 3)


def test_a_moved_job_can_be_moved_again(hits: Stream) -> None:
    savepoint, checkpoint = move_savepoint(hits), ""
    for turn in range(2):
        checkpoint = str(hits.folder / f"moved{turn}")
        restore(savepoint.url, checkpoint)
        add_epochs(hits, 2)
        run(hits, checkpoint, "out")
        savepoint = take(checkpoint, str(hits.folder / "savepoints"), seal=True)
    assert totals(hits, "out") == expected_totals(0, 6)
    assert savepoint.manifest is not None
    assert savepoint.manifest.ancestry.rows == {f"memory.{hits.store('out')}": 2 * 7}


def test_a_move_takes_over_the_dead_letter_sink_as_well(hits: Stream) -> None:
    add_epochs(hits, 1)
    sinks, letters = [MemorySink(hits.store("out"))], MemorySink(hits.store("letters"))
    hits.run(hits.rows, sinks, dead_letters=letters)
    savepoint = take(str(hits.checkpoint), str(hits.folder / "savepoints"), seal=True)
    moved = replace(hits, location=str(hits.folder / "moved"))
    restore(savepoint.url, moved.location)
    moved.run(hits.rows, sinks, dead_letters=letters)
    assert savepoint.manifest is not None
    parent = savepoint.manifest.ancestry.lineage
    marker = letters.bind(DEAD_LETTER_SCHEMA, lineage=parent, apply_timeout_s=1).open(0).marker()
    assert successor(marker)


# --- stop requests through the checkpoint ----------------------------------------------------------


def test_a_running_job_answers_a_stop_request_with_a_savepoint(hits: Stream) -> None:
    add_epochs(hits, 3)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    store = open_store(str(hits.checkpoint))
    wait_while_running(query, lambda: (hits.newest() or 0) >= 2)
    folder = str(hits.folder / "savepoints")
    request = request_stop(store, query.lineage, savepoint=folder, valid_s=TIMEOUT_S)
    assert query.await_end(TIMEOUT_S)
    answer = await_answer(store, request, timeout_s=5.0)
    assert answer is not None
    assert answer.stopped
    seal = StoredEpochLog(store).seal()
    assert seal is not None
    assert seal.epoch == 3
    moved = str(hits.folder / "moved")
    assert restore(answer.savepoint, moved).first_epoch == 3
    add_epochs(hits, 1)
    run(hits, moved, "out")
    assert totals(hits, "out") == expected_totals(0, 3)


def test_a_savepoint_that_cannot_be_taken_leaves_the_job_unsealed(hits: Stream) -> None:
    """The driver ends with the error and can be restarted."""
    add_epochs(hits, 1)
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    store = open_store(str(hits.checkpoint))
    inside = str(hits.checkpoint / "inside")
    request = request_stop(store, query.lineage, savepoint=inside, valid_s=TIMEOUT_S)
    with pytest.raises(SavepointFailed):
        query.await_end(TIMEOUT_S)
    answer = await_answer(store, request, timeout_s=5.0)
    assert answer is not None
    assert not answer.stopped
    run(hits, str(hits.checkpoint), "out")
    assert totals(hits, "out") == expected_totals(0, 0)


def test_an_expired_request_does_not_stop_a_later_driver(hits: Stream) -> None:
    add_epochs(hits, 1)
    run(hits, str(hits.checkpoint), "out")
    store = open_store(str(hits.checkpoint))
    lineage = read_lineage(store)
    assert lineage is not None
    request = request_stop(store, lineage.id, valid_s=0.0)
    assert await_answer(store, request, timeout_s=5.0) is None
    request_stop(store, lineage.id, valid_s=0.0)  # its requester was killed
    query = start(hits, str(hits.checkpoint), "out", "0 seconds")
    assert not query.await_end(1.5)
    query.stop()
