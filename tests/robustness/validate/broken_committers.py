"""Committers that are broken on purpose: `python -m tests.robustness.validate.broken_committers`.

Each breaks one rule of the protocol in the simulation of `model/protocol`, whose servers behave like
Kafka and MySQL: a transactional id that fences, an open transaction whose driver wakes up, a lock on the
marker row. The command prints the fewest faults in which the checker sees each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sluicegate.errors import SinkUnavailable
from sluicegate.protocol import coordinator, job
from sluicegate.protocol.effects import Apply, EpochSteps, LatestEpoch, LogSteps, ReadRecord
from sluicegate.protocol.job import Job
from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.protocol.ports import Staged
from sluicegate.protocol.record import Chunk, EpochRecord, Seal
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.simulated_sinks import (
    Part,
    Row,
    SimulatedSink,
    SubSteps,
    Txn,
    rows_of,
)
from tests.robustness.model.protocol.world import World
from tests.robustness.validate import fault_search
from tests.robustness.validate.fault_search import (
    Committer,
    moved_job,
    new_checkpoint,
    table,
    two_jobs,
)

Breaks = Iterator[None]


def decided_rows(sink: SimulatedSink, effect: Apply, number: int) -> list[Row]:
    """Return the rows that an apply must write."""
    return rows_of(effect.record, sink.name, number, sink._environment.read_staged)


def has_epoch(sink: SimulatedSink, effect: Apply, number: int) -> bool:
    """Return whether the marker says that the part has the epoch."""
    return sink._compare(sink.parts[number], effect.record, number) is Verdict.SKIP


def applying(
    steps: Callable[[SimulatedSink, Apply, int], SubSteps[None]],
) -> Callable[[], Any]:
    """Return a committer whose apply of one part has these steps."""

    def of_any_owner(
        sink: SimulatedSink, effect: Apply, number: int, _owner: str
    ) -> SubSteps[None]:
        return steps(sink, effect, number)

    return lambda: patch.object(SimulatedSink, "_apply_part", of_any_owner)


def marker_after(sink: SimulatedSink, effect: Apply, number: int) -> SubSteps[None]:
    """Commit the rows, then write the marker outside their transaction."""
    opened((yield "open"))
    if has_epoch(sink, effect, number):
        return
    yield from commit_rows(sink, effect, number)
    yield "mark"
    sink.parts[number].marker = effect.record.marker


def marker_before(sink: SimulatedSink, effect: Apply, number: int) -> SubSteps[None]:
    """Write the marker, then commit the rows."""
    opened((yield "open"))
    if has_epoch(sink, effect, number):
        return
    yield "mark"
    sink.parts[number].marker = effect.record.marker
    yield from commit_rows(sink, effect, number)


def opened(fault: str | None) -> None:
    """Fail if the connection could not be opened."""
    if fault:
        raise SinkUnavailable("no connection, or the lock wait timed out")


def commit_rows(sink: SimulatedSink, effect: Apply, number: int) -> SubSteps[None]:
    """Commit the rows of a part in a transaction that does not move its marker."""
    txn = sink._open(number, effect.record.marker)
    txn.marks, txn.rows = False, decided_rows(sink, effect, number)
    try:
        sink._end((yield "commit"), txn)
    finally:
        sink._abort(txn)


def flush_ignored(sink: SimulatedSink, effect: Apply, number: int) -> SubSteps[None]:
    """Commit although the server did not take the first row."""
    opened((yield "open"))
    txn = sink._open(number, effect.record.marker)
    try:
        if has_epoch(sink, effect, number):
            return
        txn.rows = decided_rows(sink, effect, number)
        if (yield "write"):
            del txn.rows[0]
        sink._end((yield "commit"), txn)
    finally:
        sink._abort(txn)


def unfenced(sink: SimulatedSink, effect: Apply, number: int) -> SubSteps[None]:
    """Open a transaction next to one of an earlier driver, which may still commit."""
    opened((yield "open"))
    if has_epoch(sink, effect, number):
        return
    txn = Txn(number, 0, effect.record.marker, decided_rows(sink, effect, number))
    if (yield "commit"):
        raise SinkUnavailable("no answer to the commit")
    sink._commit(txn)


@contextmanager
def apply_before_decide() -> Breaks:
    """Apply the staged rows, then create the record."""
    decide = coordinator._decide

    def undecided(_job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        yield LatestEpoch()
        return record

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        decided = yield from run_epoch(job, epoch)
        if not decided.replayed:
            yield from decide(job, decided.record)

    run_epoch = coordinator.run_epoch
    with (
        patch.object(coordinator, "_decide", undecided),
        patch.object(coordinator, "run_epoch", run),
    ):
        yield


def skipping_begun_epochs(begun: set[int]) -> Callable[[Job, int], EpochSteps[Any]]:
    """Return a `run_epoch` that takes an epoch that was begun before, and has no record, for applied.

    Args:
        begun: to it the epochs are added that are begun.
    """
    run_epoch = coordinator.run_epoch

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        record = yield ReadRecord(epoch)
        if record is None and epoch in begun:
            return
        begun.add(epoch)
        yield from run_epoch(job, epoch)

    return run


@contextmanager
def skip_without_record() -> Breaks:
    """Take an epoch that was begun before, and has no record, for one that is applied."""
    begun: set[int] = set()

    def forget(world: World) -> None:
        begun.clear()
        created(world)

    created = World.__post_init__
    with (
        patch.object(World, "__post_init__", forget),
        patch.object(coordinator, "run_epoch", skipping_begun_epochs(begun)),
        # the next epoch has no record before it to continue from
        patch.object(coordinator, "_previous_record", lambda _job, epoch: read(epoch - 1)),
    ):
        yield


def read(epoch: int) -> LogSteps[Any]:
    """Read a record; None if there is none."""
    return (yield ReadRecord(epoch))


def at_least(stored: Marker | None, *, this: Marker, **_: object) -> Verdict:
    """Compare epochs by their number only."""
    return Verdict.SKIP if stored is not None and stored.epoch >= this.epoch else Verdict.APPLY


@contextmanager
def no_lineage() -> Breaks:
    """Let lineages share the markers of a sink."""

    def shared(_mine: Part, theirs: Part) -> Part:
        return theirs

    with patch.object(fault_search, "share", shared):
        yield


def own_attempt(stored: Marker | None, *, this: Marker, **_: object) -> Verdict:
    """Skip what this very attempt has written, and nothing else; the chain of markers would stop instead."""
    return Verdict.SKIP if stored == this else Verdict.APPLY


def trusting_the_successor(sink: SimulatedSink, effect: Apply, number: int) -> SubSteps[None]:
    """Leave the epoch to the driver that has fenced this one: with ids of its own it is a successor."""
    opened((yield "open"))
    txn = sink._open(number, effect.record.marker)
    try:
        if has_epoch(sink, effect, number):
            return
        txn.rows = decided_rows(sink, effect, number)
        fault = yield "commit"
        if sink.parts[number].txn is txn:
            sink._end(fault, txn)
    finally:
        sink._abort(txn)


class SharedId(Part):
    """A part of one job, whose transactional id is that of another job."""

    theirs: Part

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - of any attribute
        if name in ("txn", "generation"):
            return getattr(object.__getattribute__(self, "theirs"), name)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        target = self.theirs if name in ("txn", "generation") else self
        object.__setattr__(target, name, value)


@contextmanager
def shared_id() -> Breaks:
    """Give both jobs the same transactional ids; their markers differ."""

    def shared(mine: Part, theirs: Part) -> Part:
        part = SharedId.__new__(SharedId)
        object.__setattr__(part, "theirs", theirs)
        part.marker, part.rows, part.epochs = mine.marker, theirs.rows, set()
        return part

    with patch.object(fault_search, "share", shared), applying(trusting_the_successor)():
        yield


@contextmanager
def offsets_not_compared() -> Breaks:
    """Apply a record whatever `offsets/N` says meanwhile."""

    def unchecked(_record: EpochRecord) -> LogSteps[None]:
        yield from ()

    with patch.object(job, "_verify_offsets", unchecked):
        yield


@contextmanager
def staged_names_reused() -> Breaks:
    """Name staged objects by epoch, sink and part, without the attempt; apply whatever is there."""
    staged = Driver._chunk

    def shared(
        driver: Driver, epoch: int, _attempt: str, sink: str, part: int, data: bytes
    ) -> Chunk:
        return staged(driver, epoch, "shared", sink, part, data)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Driver, "_chunk", shared))
        stack.enter_context(patch.object(Chunk, "verify", lambda _chunk, stored: stored))
        stack.enter_context(patch.object(World, "prune_after", lambda *_: None))
        yield


@contextmanager
def passable_seal() -> Breaks:
    """Create the seal under a name of its own, so that the next record can be created too."""

    def put_seal(world: World, seal: Seal) -> bool:
        if seal.epoch in world.records:
            return False
        world.events.add("sealed")
        sealed.append(seal)
        return True

    sealed: list[Seal] = []

    def read_any(driver: Driver, epoch: int) -> Seal | EpochRecord | None:
        ours = [seal for seal in sealed if seal.epoch == epoch] if driver.seals else []
        return ours[-1] if ours else found(driver, epoch)

    def newest(driver: Driver) -> int | None:
        ends = (
            [seal.epoch for seal in sealed[-1:]]
            if driver.seals and "sealed" in driver.world.events
            else []
        )
        return max([*driver.world.records, *ends], default=None)

    found = Driver.read_any
    with (
        patch.object(World, "put_seal", put_seal),
        patch.object(Driver, "read_any", read_any),
        patch.object(Driver, "newest", newest),
    ):
        yield


@contextmanager
def letters_outside() -> Breaks:
    """Write dead letters while the epoch is staged."""
    stage = Driver.stage

    def staged(driver: Driver, epoch: int, attempt: str) -> Staged:
        complete = stage(driver, epoch, attempt)
        sink = driver.world.sinks["letters"]
        for chunk in complete.chunks:
            if chunk.sink == "letters":
                record = EpochRecord("", "", epoch, attempt, "", "", {}, {}, (chunk,))
                read_staged = sink._environment.read_staged
                sink.parts[chunk.part].rows += rows_of(record, "letters", chunk.part, read_staged)
        others = tuple(chunk for chunk in complete.chunks if chunk.sink != "letters")
        return replace(complete, chunks=others)

    with patch.object(Driver, "stage", staged):
        yield


REAL = Committer("the real one", None)
REAL_ELSEWHERE = tuple(
    replace(REAL, scenario=scenario) for scenario in (new_checkpoint, two_jobs, moved_job)
)
OWN_IDS = Committer("ids of its own", applying(trusting_the_successor), two_jobs)
"""The control of the shared id: the same apply is right where the id belongs to one job."""

_TWO_PARTS = (("parts", 2), ("size", lambda _n, _e: 4))

BROKEN = (
    Committer("marker outside the transaction", applying(marker_after)),
    Committer("marker before the rows", applying(marker_before)),
    Committer("apply before decide", apply_before_decide, changes=(("compare", own_attempt),)),
    Committer("skip without a record", skip_without_record),
    Committer("epoch keyed without lineage", no_lineage, new_checkpoint, (("compare", at_least),)),
    Committer("a transactional id shared by two jobs", shared_id, two_jobs),
    Committer("flush errors ignored", applying(flush_ignored)),
    Committer("redo without fencing", applying(unfenced)),
    Committer("offsets not compared", offsets_not_compared),
    Committer("staged names reused", staged_names_reused, changes=_TWO_PARTS),
    Committer("a seal that a decision can pass", passable_seal, moved_job),
    Committer("dead letters outside the epoch", letters_outside),
)

if __name__ == "__main__":
    for line in table(BROKEN):
        sys.stdout.write(f"{line}\n")
