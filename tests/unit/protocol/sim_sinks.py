"""Simulated sinks whose every apply is cut into steps, so that anything can come between two.

Two kinds. 'fencing' is as Kafka: opening a part raises its generation, and an older generation
cannot commit any more. 'locking' is as MySQL: opening a part takes its row lock, and who comes
later waits. Not here: what a real server does; that is for the contract and integration tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from sluicegate.protocol.effects import Apply
from sluicegate.protocol.errors import EpochLogBroken, MarkerMismatch, SinkUnavailable
from sluicegate.protocol.markers import GENESIS, Marker, Verdict
from sluicegate.protocol.record import Chunk, EpochRecord, decode

Fault = str | None
"""What goes wrong with the next request; None where nothing does.

'lost': performed, the reply is lost. 'failed': not performed. 'late': performed when the world
says so, after the client has given up. 'glitch': a read in doubt does not see what is there.
"""

cached_decode = lru_cache(maxsize=4096)(decode)

SubSteps = Generator[str, Fault, None]


class Row(NamedTuple):
    """One visible row: which epoch and attempt brought which input."""

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


@dataclass
class Part:
    """What the sink's server holds of one part."""

    marker: Marker | None
    rows: list[Row] = field(default_factory=list)
    generation: int = 0
    txn: Txn | None = None


@dataclass(frozen=True)
class Late:
    """A request whose client has given up and that the network still holds."""

    what: str
    land: Callable[[], None]
    drop: Callable[[], None]


@dataclass(frozen=True)
class Surroundings:
    """What a sink needs of the world around it."""

    judge: Callable[..., Verdict]
    read_staged: Callable[[str], bytes | None]
    delay: Callable[[Late], None]


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


class SimSink:
    """One sink with its parts, and every state that it was in, for backups."""

    def __init__(self, name: str, kind: str, parts: int, around: Surroundings) -> None:
        self.name, self.kind, self._around = name, kind, around
        # MySQL's marker rows are seeded beforehand; Kafka's are not there before the first epoch
        self.parts = [Part(GENESIS if kind == "locking" else None) for _ in range(parts)]
        self.history = [self.backup()]
        self.version = 0

    # --- what an apply does -----------------------------------------------------------------

    def applying(self, effect: Apply) -> SubSteps:
        """Apply a record; yields the name of each step before it is done, and is sent a fault."""
        for part in effect.parts:
            yield from self._one(effect, part)

    def _one(self, effect: Apply, number: int) -> SubSteps:
        part, record = self.parts[number], effect.record
        fault = yield "open"
        while self.kind == "locking" and part.txn is not None and not fault:
            fault = yield "blocked"
        if fault:
            raise SinkUnavailable("no connection, or the lock wait timed out")
        txn = self._open(number, record.marker)
        try:
            if self.kind == "fencing":
                self._check((yield "judge"), txn)
            where = f"{self.name}/{number}"
            if part.marker is None and self.kind == "locking":
                raise MarkerMismatch(f"{where}: the seeded marker is gone")
            verdict = self._around.judge(
                part.marker, this=record.marker, prev=record.prev_of(self.name, number), where=where
            )
            if verdict is Verdict.SKIP:
                return
            self._check((yield "write"), txn)
            if not effect.discard:
                txn.rows = rows_of(record, self.name, number, self._around.read_staged)
            self._end((yield "commit"), txn)
        finally:
            self._abort(txn)

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
            self._around.delay(
                Late(f"commit of {txn.marker}", lambda: self._land(txn), lambda: self._drop(txn))
            )
        elif fault != "failed":
            self._check(None, txn)
            self._commit(txn)
        if fault:
            raise SinkUnavailable("no answer to the commit")

    def _commit(self, txn: Txn) -> None:
        part = self.parts[txn.part]
        part.rows.extend(txn.rows)
        part.marker = txn.marker
        part.txn = None
        self.version += 1
        self.history.append(self.backup())

    def _land(self, txn: Txn) -> None:
        if self.parts[txn.part].txn is txn:
            self._commit(txn)

    def _drop(self, txn: Txn) -> None:
        txn.in_flight = False
        self._abort(txn)

    def _abort(self, txn: Txn) -> None:
        if self.parts[txn.part].txn is txn and not txn.in_flight:
            self.parts[txn.part].txn = None

    # --- what happens to the server ---------------------------------------------------------

    def backup(self) -> tuple[tuple[tuple[Row, ...], Marker | None], ...]:
        """Return the committed state."""
        return tuple((tuple(part.rows), part.marker) for part in self.parts)

    def restore(self, index: int) -> None:
        """Go back to an earlier committed state; open transactions are gone."""
        for part, (rows, marker) in zip(self.parts, self.history[index], strict=True):
            part.rows, part.marker = list(rows), marker
        del self.history[index + 1 :]
        self.end_connections()
        self.version += 1

    def end_connections(self) -> None:
        """Roll every open transaction back, as a server does after its wait timeout."""
        for part in self.parts:
            part.txn = None
            part.generation += 1

    def wipe_markers(self) -> None:
        """Lose the markers and keep the rows: somebody re-created the markers' topic or table."""
        for part in self.parts:
            part.marker = None
        self.end_connections()
        self.version += 1

    def discard(self, record: EpochRecord) -> bool:
        """Move the markers and write nothing (rule 14). False where a lock is held."""
        if self.kind == "locking" and any(part.txn for part in self.parts):
            return False
        for number in record.parts_with_rows(self.name):
            found = self.parts[number].marker or GENESIS
            if found == record.prev_of(self.name, number):
                self._commit(self._open(number, record.marker))
        return True

    def key(self) -> tuple[object, ...]:
        """Return what tells this state from another (generations only by who holds the part)."""
        return tuple(
            (tuple(p.rows), p.marker, p.txn and (p.txn.marker, len(p.txn.rows), p.txn.in_flight))
            for p in self.parts
        )
