"""A sink that fails after some rows, in phase one (staging) or phase two (applying).

It wraps any sink, to demonstrate that a failing sink neither loses nor repeats rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from sluicegate.errors import SinkRejected
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.contract import BoundSink, PartDecision, PartWriter, Receipt, Sink

NEVER, STAGE, APPLY = "never", "stage", "apply"

_seen = {STAGE: 0, APPLY: 0}
"""Rows that this process, a driver or a reused Python worker, has seen in each phase."""


class StagingFailure(Exception):
    """Raised by a failing sink in phase one."""


@dataclass(frozen=True)
class FailingSink:
    """A sink with a failure; it has the id and markers of the wrapped sink.

    Args:
        sink: the wrapped sink.
        phase: STAGE or APPLY.
        rows: how many rows a process accepts before every further row fails.
    """

    redoable: ClassVar[bool] = False

    sink: Sink
    phase: str
    rows: int

    @property
    def id(self) -> str:
        """The id of the wrapped sink."""
        return self.sink.id

    @property
    def of(self) -> str | None:
        """The output that it writes."""
        return self.sink.of

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundSink:
        """Bind the sink; see `contract.Sink`."""
        bound = self.sink.bind(rows, lineage=lineage, apply_timeout_s=apply_timeout_s)
        return _FailingBound(
            bound,
            self.phase,
            self.rows,
            id=bound.id,
            binding=bound.binding,
            expressions=bound.expressions,
            part_expression=bound.part_expression,
            refresh_every_s=bound.refresh_every_s,
        )


@dataclass(frozen=True)
class _FailingBound:
    """See `contract.BoundSink`."""

    bound: BoundSink
    phase: str
    rows: int
    id: str
    binding: SinkBinding
    expressions: Sequence[tuple[str, str]]
    part_expression: str | None
    refresh_every_s: float | None

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        if self.phase == STAGE and _accepted(STAGE, self.rows, batch.num_rows) < batch.num_rows:
            raise StagingFailure(
                f"sink {self.id} fails at row {self.rows + 1} while staging, as configured"
            )
        return self.bound.refusals(batch)

    def open(self, part: int) -> PartWriter:
        writer = self.bound.open(part)
        return _FailingWriter(writer, self.id, self.rows) if self.phase == APPLY else writer


@dataclass(frozen=True)
class _FailingWriter:
    """See `contract.PartWriter`."""

    writer: PartWriter
    sink: str
    rows: int

    def marker(self, *, durable: bool = False) -> Marker | None:
        return self.writer.marker(durable=durable)

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        return self.writer.apply(decision, self._until_failure(batches))

    def close(self) -> None:
        self.writer.close()

    def _until_failure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            accepted = _accepted(APPLY, self.rows, batch.num_rows)
            if accepted:
                yield batch.slice(0, accepted)
            if accepted < batch.num_rows:
                yield batch.slice(accepted, 1)  # so that the rows before it are sent
                raise SinkRejected(
                    f"sink {self.sink} fails at row {self.rows + 1} while applying, as configured",
                    data="its transaction is rolled back; the epoch stays decided",
                    do="start the job again without --fail-mysql",
                )


def _accepted(phase: str, rows: int, offered: int) -> int:
    """Return how many of the offered rows are accepted before the failure."""
    accepted = min(offered, max(0, rows - _seen[phase]))
    _seen[phase] += offered
    return accepted
