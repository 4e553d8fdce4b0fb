"""Simulated sinks whose applies are split into steps, so that anything can come between two.

A 'fencing' sink behaves like Kafka: opening a part raises its generation, and an older generation can
no longer commit. A 'locking' sink behaves like MySQL: opening a part acquires its row lock, and later
ones wait. The contract and integration tests check what the real servers do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from sluicegate.errors import EpochLogBroken, MarkerMismatch, SinkRegressed, SinkUnavailable
from sluicegate.protocol.effects import Apply, SeedMarkers
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.protocol.record import Chunk, EpochRecord, decode
from sluicegate.settings.epoch import EXACTLY_ONCE

Fault = str | None
"""The fault of the next request, None for no fault.

'lost': performed, but the reply is lost. 'failed': not performed. 'late': performed when the world
delivers it, after the client has given up. 'glitch': a read after a write does not see it yet.
"""

T = TypeVar("T")

cached_decode = lru_cache(maxsize=4096)(decode)

SubSteps = Generator[str, Fault, T]
"""Steps within a transaction that return a T: the name of each, answered with its fault."""


def finish(steps: SubSteps[T]) -> T:
    """Perform all steps without a fault and return what they return."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


class Row(NamedTuple):
    """One visible row: the input offset, and the epoch and attempt that wrote it."""

    epoch: int
    offset: int
    attempt: str


@dataclass(eq=False)
class Txn:
    """An open transaction on one part."""

    part: int
    generation: int
    marker: Marker
    rows: list[Row] = field(default_factory=list)
    in_flight: bool = False
    marks: bool = True
    """Whether the commit moves the marker: only with exactly-once."""
    owner: str = ""
    """The driver that opened it: the other one of the same record is fenced."""


@dataclass
class Part:
    """The state of one part in the sink's server."""

    marker: Marker | None
    durable: Marker | None = None
    """The marker where it does not expire: moved in the same transaction, read if `marker` is absent."""
    rows: list[Row] = field(default_factory=list)
    epochs: set[int] = field(default_factory=set)
    """Epochs that were committed; used only by the invariants."""
    discarded: set[int] = field(default_factory=set)
    """Epochs that were discarded before they were committed; used only by the invariants."""
    lost_marker: int = NO_MARKER.epoch
    """The epoch of the newest marker that it lost without its rows; used only by the invariants."""
    generation: int = 0
    txn: Txn | None = None

    def move(self, marker: Marker | None) -> None:
        """Write the marker everywhere."""
        self.marker = self.durable = marker

    def recover(self) -> None:
        """Write a marker again that has expired."""
        self.marker = self.marker or self.durable


@dataclass(frozen=True)
class LateRequest:
    """A request that is still in the network although its client has given up."""

    what: str
    deliver: Callable[[], None]
    drop: Callable[[], None]


@dataclass(frozen=True)
class Environment:
    """What a sink needs from the world."""

    compare: Callable[..., Verdict]
    seed: Callable[..., Marker]
    read_staged: Callable[[str], bytes | None]
    delay: Callable[[LateRequest], None]


def rows_of(
    record: EpochRecord, sink: str, part: int, read: Callable[[str], bytes | None]
) -> list[Row]:
    """Return the decided rows of one part, from the record or from the staging area."""
    return [
        Row(record.epoch, offset, attempt)
        for chunk in record.part_chunks(sink, part)
        for offset, attempt in json.loads(chunk.verify(_stored(chunk, read)))
    ]


def _stored(chunk: Chunk, read: Callable[[str], bytes | None]) -> bytes:
    stored = chunk.inline if chunk.name is None else read(chunk.name)
    if stored is None:
        raise EpochLogBroken(f"staged object {chunk.name} of a decided epoch is gone")
    return stored


class SimulatedSink:
    """One sink with its parts, and each of its former states, for backups."""

    def __init__(self, name: str, kind: str, parts: int, environment: Environment) -> None:
        self.name, self.kind, self._environment = name, kind, environment
        # seeding is the same in both kinds: searching it in one is enough
        seed = Marker(NO_MARKER.epoch, "seeded.0") if kind == "locking" else None
        self.parts = [Part(seed) for _ in range(parts)]
        self.history = [self.backup()]
        self.version = 0
        self._seeds = 0

    # --- apply --------------------------------------------------------------------------------

    def applying(self, effect: Apply, owner: str) -> SubSteps[None]:
        """Apply a record for a driver; yield the name of each step before it, and receive its fault."""
        for part in effect.parts:
            yield from self._apply_part(effect, part, owner)

    def _apply_part(self, effect: Apply, number: int, owner: str) -> SubSteps[None]:
        part, record = self.parts[number], effect.record
        fault = yield "open"
        while self.kind == "locking" and part.txn is not None and not fault:
            fault = yield "blocked"
        if fault:
            raise SinkUnavailable("no connection, or the lock wait timed out")
        txn = self._open(number, record.marker)
        txn.marks, txn.owner = record.delivery == EXACTLY_ONCE, owner
        try:
            if txn.marks:
                if self.kind == "fencing":
                    self._check((yield "compare"), txn)
                if self._compare(part, record, number) is Verdict.SKIP:
                    return
            self._check((yield "write"), txn)
            if not effect.discard:
                txn.rows = rows_of(record, self.name, number, self._environment.read_staged)
            self._end((yield "commit"), txn)
        finally:
            self._abort(txn)

    def seeding(self, effect: SeedMarkers) -> SubSteps[dict[int, Marker]]:
        """Check the markers before the decision of a record, and seed absent ones.

        One step for each part: a writer that another one fences in between has no effect, which is
        the fault 'failed'.
        """
        markers: dict[int, Marker] = {}
        for number in effect.parts:
            part, expected = self.parts[number], effect.record.prev_of(self.name, number)
            if self.kind == "locking":  # its markers never expire, and reading them locks nothing
                if part.marker is not None or expected != NO_MARKER:
                    markers[number] = before = self._name(effect, number, expected)
                    if before not in (part.marker, expected):
                        part.move(before)
                continue
            fault = yield "seed"
            if fault not in ("failed", "late"):
                markers[number] = self._seed(effect, number, expected)
            if fault:
                raise SinkUnavailable("no answer")
        return markers

    def _name(self, effect: SeedMarkers, number: int, expected: Marker) -> Marker:
        """Return the marker that the record names as the one before it."""
        found, this = self.parts[number].marker, effect.record.marker
        self._seeds += 1
        new_id, may_expire = f"{effect.record.attempt}.{self._seeds}", effect.may_expire
        before = self._environment.seed(
            found, expected=expected, new_id=new_id, may_expire=may_expire
        )
        if before == expected:  # as `markers.check_undecided`
            try:
                where = f"{self.name}/{number}"
                self._environment.compare(found, this=this, prev=expected, where=where)
            except SinkRegressed:
                if not effect.may_regress:
                    raise
        return before

    def _seed(self, effect: SeedMarkers, number: int, expected: Marker) -> Marker:
        part = self.parts[number]
        if effect.durable and expected != NO_MARKER:
            part.recover()
        before = self._name(effect, number, expected)
        self._open(number, effect.record.marker)
        part.txn = None
        if before != expected:
            part.move(before)
        return before

    def _compare(self, part: Part, record: EpochRecord, number: int) -> Verdict:
        where = f"{self.name}/{number}"
        if part.marker is None and self.kind == "locking":
            raise MarkerMismatch(f"{where}: the marker row is gone")
        prev = record.prev_of(self.name, number)
        if record.sinks[self.name].durable_markers and prev != NO_MARKER:
            part.recover()
        return self._environment.compare(part.marker, this=record.marker, prev=prev, where=where)

    def _open(self, number: int, marker: Marker) -> Txn:
        part = self.parts[number]
        part.generation += 1
        part.txn = Txn(number, part.generation, marker)
        return part.txn

    def _check(self, fault: Fault, txn: Txn) -> None:
        if fault or self.parts[txn.part].txn is not txn:
            raise SinkUnavailable("fenced by another producer, or the connection is gone")

    def _end(self, fault: Fault, txn: Txn) -> None:
        if fault == "late":
            txn.in_flight = True
            self._environment.delay(
                LateRequest(
                    f"commit of {txn.marker} by {txn.owner}",
                    lambda: self._deliver(txn),
                    lambda: self._drop(txn),
                )
            )
        elif fault != "failed":
            self._check(None, txn)
            self._commit(txn)
        if fault:
            raise SinkUnavailable("no answer to the commit")

    def _commit(self, txn: Txn) -> None:
        part = self.parts[txn.part]
        part.rows.extend(txn.rows)
        part.epochs.add(txn.marker.epoch)
        if txn.marks:
            part.move(txn.marker)
        part.txn = None
        self.version += 1
        self.history.append(self.backup())

    def _deliver(self, txn: Txn) -> None:
        if self.parts[txn.part].txn is txn:
            self._commit(txn)

    def _drop(self, txn: Txn) -> None:
        txn.in_flight = False
        self._abort(txn)

    def _abort(self, txn: Txn) -> None:
        if self.parts[txn.part].txn is txn and not txn.in_flight:
            self.parts[txn.part].txn = None

    # --- events of the server ---------------------------------------------------------------

    def backup(self) -> tuple[tuple[tuple[Row, ...], Marker | None], ...]:
        """Return the committed state."""
        return tuple((tuple(part.rows), part.marker or part.durable) for part in self.parts)

    def restore(self, index: int) -> None:
        """Restore an earlier committed state; open transactions are rolled back."""
        for part, (rows, marker) in zip(self.parts, self.history[index], strict=True):
            part.rows = list(rows)
            part.move(marker)
        del self.history[index + 1 :]
        self.end_connections()
        self.version += 1

    def end_connections(self) -> None:
        """Roll back every open transaction, as a server does after its wait timeout."""
        for part in self.parts:
            part.txn = None
            part.generation += 1

    def expire_markers(self) -> None:
        """Remove the markers, but neither the rows nor the durable markers."""
        for part in self.parts:
            part.marker = None
        self.end_connections()
        self.version += 1

    def wipe_markers(self) -> None:
        """Remove the markers but not the rows: their topic or table is re-created."""
        for part in self.parts:
            part.move(None)
        self.end_connections()
        self.version += 1

    def lose_markers(self, older: Mapping[int, Marker]) -> None:
        """Replace markers by older ones and keep the rows, which are in another topic."""
        for number, marker in older.items():
            part = self.parts[number]
            if newest := part.marker or part.durable:
                part.lost_marker = max(part.lost_marker, newest.epoch)
                part.move(marker)
        self.end_connections()
        self.version += 1

    def restore_before_seeds(self) -> None:
        """Restore a backup that was made when the marker rows existed and their seeds did not."""
        for part in self.parts:
            part.rows = []
            part.move(NO_MARKER)
        self.history = [self.backup()]
        self.end_connections()
        self.version += 1

    def discard(self, record: EpochRecord) -> bool:
        """Move the markers and write no rows (rule 14); return False if a lock is held."""
        if self.kind == "locking" and any(part.txn for part in self.parts):
            return False
        for number in record.parts_with_rows(self.name):
            self.parts[number].recover()
            marker = self.parts[number].marker or NO_MARKER
            if marker == record.prev_of(self.name, number):
                self._commit(self._open(number, record.marker))
                self.parts[number].discarded.add(record.epoch)
        return True

    def key(self) -> tuple[object, ...]:
        """Return a key that identifies this state; of generations only the current owner counts."""
        return tuple(
            (
                tuple(p.rows),
                p.marker,
                p.durable,
                p.txn and (p.txn.owner, p.txn.marker, len(p.txn.rows), p.txn.in_flight),
            )
            for p in self.parts
        )
