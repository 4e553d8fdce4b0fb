"""A sink that throws after some rows, in phase one (staging) or phase two (applying).

For showing what a failing sink does to a job: nothing. Not a failpoint, which kills what passes it.
Called by two_sinks; wraps any sink of the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from sluicegate.protocol.errors import SinkRejected
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.contract import BoundSink, PartDecision, PartWriter, Receipt, Sink

NEVER, STAGE, APPLY = "never", "stage", "apply"

_seen = {STAGE: 0, APPLY: 0}
"""Rows that this process has seen: a driver, or a Python worker that Spark reuses."""


class Thrown(Exception):
    """What a failing sink throws in phase one."""


@dataclass(frozen=True)
class FailingSink:
    """A sink with its failure; to epochs and markers it is the sink itself.

    Args:
        sink: that does the work.
        phase: STAGE or APPLY.
        rows: how many it takes, in the life of a process, before it throws at each further one.
    """

    redoable: ClassVar[bool] = False

    sink: Sink
    phase: str
    rows: int

    @property
    def id(self) -> str:
        """The id of the sink that does the work."""
        return self.sink.id

    @property
    def of(self) -> str | None:
        """Which output it takes."""
        return self.sink.of

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundSink:
        """Bind the sink; see `contract.Sink`."""
        bound = self.sink.bind(rows, lineage=lineage, apply_timeout_s=apply_timeout_s)
        return _FailingBound(bound, self.phase, self.rows)


@dataclass(frozen=True)
class _FailingBound:
    """See `contract.BoundSink`."""

    bound: BoundSink
    phase: str
    rows: int

    @property
    def id(self) -> str:
        return self.bound.id

    @property
    def binding(self) -> SinkBinding:
        return self.bound.binding

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        return self.bound.expressions

    @property
    def part_expression(self) -> str | None:
        return self.bound.part_expression

    @property
    def refresh_every_s(self) -> float | None:
        return self.bound.refresh_every_s

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        if self.phase == STAGE and _taken(STAGE, self.rows, batch.num_rows) < batch.num_rows:
            raise Thrown(
                f"sink {self.id} throws at row {self.rows + 1} while staging, as it was told to"
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

    def marker(self) -> Marker | None:
        return self.writer.marker()

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        return self.writer.apply(decision, self._until_failure(batches))

    def close(self) -> None:
        self.writer.close()

    def _until_failure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            taken = _taken(APPLY, self.rows, batch.num_rows)
            if taken:
                yield batch.slice(0, taken)
            if taken < batch.num_rows:
                yield batch.slice(taken, 1)  # so that those before it are sent
                raise SinkRejected(
                    f"sink {self.sink} throws at row {self.rows + 1} while applying, as it was told to",
                    data="its transaction is rolled back; the epoch stays decided",
                    do="start the job again without --fail-mysql",
                )


def _taken(phase: str, rows: int, offered: int) -> int:
    """Return how many of the offered rows are taken before the failure."""
    taken = min(offered, max(0, rows - _seen[phase]))
    _seen[phase] += offered
    return taken
