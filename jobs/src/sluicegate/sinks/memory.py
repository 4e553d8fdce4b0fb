"""A sink in the memory of the process, for tests and examples: the smallest complete sink.

It is neither durable nor shared: in another process the same name is another, empty store. It fences by
generation, as Kafka does: opening a part prevents every earlier writer of it from committing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.errors import SchemaMismatch, SettingsInvalid, SinkRejected, SinkUnavailable
from sluicegate.protocol.markers import Marker, Verdict, compare_marker
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.contract import PartDecision, Receipt, Step

Row = dict[str, Any]


@dataclass
class _Part:
    """The committed state of a part, and the generation of the writer that may commit."""

    rows: list[Row] = field(default_factory=list)
    marker: Marker | None = None
    generation: int = 0


class _Store:
    """All parts of one name. The lock is held for a single commit at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.parts: dict[tuple[str, str, int], _Part] = {}

    def part(self, lineage: str, sink: str, part: int) -> _Part:
        return self.parts.setdefault((lineage, sink, part), _Part())


_stores: dict[str, _Store] = {}
_stores_lock = threading.Lock()


def _store(name: str) -> _Store:
    with _stores_lock:
        return _stores.setdefault(name, _Store())


def committed(name: str) -> list[Row]:
    """Return the committed rows of a store; rows of one part are in order."""
    store = _store(name)
    with store.lock:
        return [dict(row) for part in store.parts.values() for row in part.rows]


def forget(name: str) -> None:
    """Empty a store, including its markers."""
    with _stores_lock:
        _stores.pop(name, None)


@dataclass(frozen=True)
class MemorySink:
    """Writes rows into a list of this process.

    Args:
        name: of the store; see `committed`.
        required: columns that must not be null, so that the sink can refuse rows.
        key: column whose rows share a part.
        parts: how many transactions write an epoch.
        id: unique in the job; default: 'memory.<name>'.
        of: the output of the job that it writes, if there are several.
    """

    redoable: ClassVar[bool] = False

    name: str
    required: tuple[str, ...] = ()
    key: str | None = None
    parts: int = 1
    id: str = ""
    of: str | None = None

    def __post_init__(self) -> None:
        """Fill in the id."""
        object.__setattr__(self, "id", self.id or f"memory.{self.name}")
        if self.parts < 1:
            raise SettingsInvalid(
                f"MemorySink({self.name!r}): parts={self.parts} is not 1 or more",
                data="nothing was written",
                do="correct the argument",
            )

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundMemory:
        """Check the columns; see the contract. The timeout is unused: no apply takes that long."""
        del apply_timeout_s
        missing = sorted({*self.required, *([self.key] if self.key else [])} - set(rows.names))
        if missing:
            raise SchemaMismatch(
                f"store {self.name}: the rows have no column {', '.join(missing)}",
                data="nothing was written",
                do=f"name some of {', '.join(rows.names)}",
            )
        return BoundMemory(self.id, self.name, lineage, self.parts, tuple(rows.names), self)


@dataclass(frozen=True)
class BoundMemory:
    """See `contract.BoundSink`."""

    id: str
    name: str
    lineage: str
    parts: int
    columns: tuple[str, ...]
    sink: MemorySink

    @property
    def binding(self) -> SinkBinding:
        """What the epoch record stores of this sink."""
        return SinkBinding("memory", f"store {self.name}", self.parts, f"{self.lineage}/{self.id}")

    @property
    def expressions(self) -> tuple[tuple[str, str], ...]:
        """All columns, unchanged."""
        return tuple((name, _quoted(name)) for name in self.columns)

    @property
    def part_expression(self) -> str | None:
        """The key's hash, or the task without a key."""
        if self.parts == 1:
            return None
        key = self.sink.key
        number = f"xxhash64({_quoted(key)})" if key else "spark_partition_id()"
        return f"cast(pmod({number}, {self.parts}) as int)"

    @property
    def refresh_every_s(self) -> float | None:
        """Markers never expire."""
        return None

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """Refuse nulls in required columns."""
        reasons = pa.nulls(batch.num_rows, pa.string())
        for name in self.sink.required:
            reason = f"column {name} is null; store {self.name} requires it"
            reasons = pc.if_else(batch.column(name).is_null(), reason, reasons)
        return None if reasons.null_count == batch.num_rows else reasons

    def open(self, part: int) -> MemoryPartWriter:
        """Return a writer for a part; it fences every earlier writer of the same part."""
        return MemoryPartWriter(self, part)


class MemoryPartWriter:
    """Applies one part: collects rows and makes them visible together with the marker."""

    def __init__(self, sink: BoundMemory, part: int) -> None:
        self._sink, self._where = sink, f"store {sink.name}, part {part}"
        self._store = _store(sink.name)
        with self._store.lock:
            self._part = self._store.part(sink.lineage, sink.id, part)
            self._part.generation += 1
            self._generation = self._part.generation

    def marker(self) -> Marker | None:
        """Return the committed marker."""
        with self._store.lock:
            return self._part.marker

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        """Write rows and marker together; see the contract."""
        times = [time.time_ns()]
        if decision.markers and self._compare_marker(decision) is Verdict.SKIP:
            return Receipt(Verdict.SKIP)
        decision.reach("apply-begun")
        rows: list[Row] = []
        size = 0
        times.append(time.time_ns())
        for batch in batches:
            refused = self._sink.refusals(batch)
            if refused is not None:
                raise SinkRejected(
                    f"{self._where}: {refused.drop_null()[0]}",
                    data="none of the epoch's rows is visible in this part",
                    do="call `refusals` before the decision",
                )
            rows += batch.to_pylist()
            size += batch.nbytes
        decision.reach("apply-written")
        times += [time.time_ns()] * 2
        decision.reach("before-commit")
        self._commit(decision, rows)
        times.append(time.time_ns())
        decision.reach("after-commit")
        names = ("begin", "write", "flush", "commit")
        steps = tuple(Step(n, a, b) for n, a, b in zip(names, times, times[1:], strict=False))
        return Receipt(Verdict.APPLY, rows=len(rows), bytes=size, steps=steps)

    def close(self) -> None:
        """Do nothing: nothing is open between calls."""

    def _compare_marker(self, decision: PartDecision) -> Verdict:
        return compare_marker(
            self.marker(), this=decision.this, prev=decision.prev, where=self._where
        )

    def _commit(self, decision: PartDecision, rows: list[Row]) -> None:
        with self._store.lock:
            # While this generation is current, nobody has moved the marker since it was compared:
            # a writer that is opened later increments the generation first.
            if self._part.generation != self._generation:
                raise SinkUnavailable(
                    f"{self._where}: another writer of this part has fenced this one",
                    data="nothing of this writer's rows is visible",
                    do="open a new writer and apply again; it reads the marker",
                )
            self._part.rows += rows
            if decision.markers:
                self._part.marker = decision.this


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
