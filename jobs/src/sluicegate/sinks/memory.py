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
from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.contract import PartDecision, Receipt, apply_steps, quoted

Row = dict[str, Any]


@dataclass
class _Part:
    """The committed state of a part, and the generation of the writer that may commit."""

    rows: list[Row] = field(default_factory=list)
    marker: Marker | None = None
    generation: int = 0


_stores: dict[str, dict[tuple[str, str, int], _Part]] = {}
"""Name of a store -> lineage, sink and part -> state."""

_lock = threading.Lock()
"""Guards all stores."""


def committed(name: str) -> list[Row]:
    """Return the committed rows of a store; rows of one part are in order."""
    with _lock:
        return [dict(row) for part in _stores.get(name, {}).values() for row in part.rows]


def forget(name: str) -> None:
    """Empty a store, including its markers."""
    with _lock:
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
        object.__setattr__(self, "id", self.id or f"memory.{self.name}")
        if self.parts < 1:
            raise SettingsInvalid(
                f"MemorySink({self.name!r}): parts={self.parts} is not 1 or more",
                data="nothing was written",
                do="correct the argument",
            )

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundMemory:
        """Check the columns; the timeout is unused, because no apply takes that long."""
        del apply_timeout_s
        missing = sorted({*self.required, *([self.key] if self.key else [])} - set(rows.names))
        if missing:
            raise SchemaMismatch(
                f"store {self.name}: the rows have no column {', '.join(missing)}",
                data="nothing was written",
                do=f"name some of {', '.join(rows.names)}",
            )
        return BoundMemory(self, lineage, tuple(rows.names))


@dataclass(frozen=True)
class BoundMemory:
    """See `contract.BoundSink`."""

    refresh_every_s: ClassVar[float | None] = None  # markers never expire

    sink: MemorySink
    lineage: str
    columns: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.sink.id

    @property
    def binding(self) -> SinkBinding:
        marker_key = f"{self.lineage}/{self.id}"
        return SinkBinding("memory", f"store {self.sink.name}", self.sink.parts, marker_key)

    @property
    def expressions(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, quoted(name)) for name in self.columns)

    @property
    def part_expression(self) -> str | None:
        """The key's hash, or the task without a key."""
        key, parts = self.sink.key, self.sink.parts
        number = f"xxhash64({quoted(key)})" if key else "spark_partition_id()"
        return f"cast(pmod({number}, {parts}) as int)" if parts > 1 else None

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """Refuse nulls in required columns."""
        reasons = pa.nulls(batch.num_rows, pa.string())
        for name in self.sink.required:
            reason = f"column {name} is null; store {self.sink.name} requires it"
            reasons = pc.if_else(batch.column(name).is_null(), reason, reasons)
        return None if reasons.null_count == batch.num_rows else reasons

    def open(self, part: int) -> MemoryPartWriter:
        return MemoryPartWriter(self, part)


class MemoryPartWriter:
    """Applies one part: collects rows and makes them visible together with the marker."""

    def __init__(self, sink: BoundMemory, part: int) -> None:
        self._sink, self._where = sink, f"store {sink.sink.name}, part {part}"
        with _lock:
            parts = _stores.setdefault(sink.sink.name, {})
            self._part = parts.setdefault((sink.lineage, sink.id, part), _Part())
            self._part.generation += 1
            self._generation = self._part.generation

    def marker(self, *, durable: bool = False) -> Marker | None:  # noqa: ARG002 - it never expires
        with _lock:
            return self._part.marker

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        times_ns = [time.time_ns()]
        if decision.markers and decision.verdict(self.marker(), self._where) is Verdict.SKIP:
            return Receipt(Verdict.SKIP)
        decision.reach("apply-begun")
        rows: list[Row] = []
        size = 0
        times_ns.append(time.time_ns())
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
        decision.reach("apply-flushed")
        times_ns += [time.time_ns()] * 2  # nothing to flush
        decision.reach("before-commit")
        self._commit(decision, rows)
        times_ns.append(time.time_ns())
        decision.reach("after-commit")
        return Receipt(Verdict.APPLY, rows=len(rows), bytes=size, steps=apply_steps(times_ns))

    def close(self) -> None:
        """Do nothing: nothing is open between calls."""

    def _commit(self, decision: PartDecision, rows: list[Row]) -> None:
        with _lock:
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
