"""The contract of a sink: three small classes, and what callers do not guarantee.

A user writes a `Sink`: a frozen, picklable description. Its `bind` is the preflight: it talks to the
server, checks the target against the rows and returns a `BoundSink`. That travels to the executors,
where `refusals` checks staged rows and `open` returns the `PartWriter` that applies them.

Traps, all tested by tests/contract:

- `apply` may be called any number of times for one record, from several processes at once, long
  after staging, and for a record that is already applied. Exactly one call's rows become visible.
- `close` may never be called, because processes are killed. Nothing may depend on it.
- After a writer raised, a new `open` must return a usable writer; the old one need not be usable.
- `refusals` runs on executors, before the decision; `apply` runs after it. `apply` must be able to
  write every row that `refusals` accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa

from sluicegate.protocol.markers import Marker, Verdict, compare_marker
from sluicegate.protocol.record import SinkBinding

Reach = Callable[[str], None]
"""Failpoint hook; a writer calls it at each point of an applier (`failpoints.POINTS`)."""


@dataclass(frozen=True)
class PartDecision:
    """The decision about one part of a sink.

    Args:
        lineage: the history that the markers belong to.
        this: the part's marker after the apply.
        prev: the part's marker before the apply.
        markers: False for at-least-once: write without reading or moving a marker.
        durable_markers: see `SinkBinding`, as the epoch was decided: where a marker has expired, the
            one that cannot expire is as good.
        traceparent: W3C trace context of the epoch; empty if it is not traced.
        form: see `SinkBinding`, as the epoch was decided: a sink that has another one refuses the rows.
        reach: failpoint hook.
    """

    lineage: str
    this: Marker
    prev: Marker
    markers: bool = True
    durable_markers: bool = False
    traceparent: str = ""
    form: str = ""
    reach: Reach = field(default=lambda _point: None)

    def verdict(self, found: Marker | None, where: str) -> Verdict:
        """Compare the part's marker with the decision; see `markers.compare_marker`."""
        return compare_marker(found, this=self.this, prev=self.prev, where=where)


@dataclass(frozen=True)
class Step:
    """One timed step of an apply ('begin', 'write', 'flush', 'commit'), ns since 1970."""

    name: str
    start_ns: int
    end_ns: int


def apply_steps(times_ns: Sequence[int]) -> tuple[Step, ...]:
    """Return the steps of an apply, given the time at which it began and the end of each step."""
    names = ("begin", "write", "flush", "commit")
    return tuple(map(Step, names, times_ns, times_ns[1:]))


@dataclass(frozen=True)
class Receipt:
    """The result of an apply."""

    verdict: Verdict
    rows: int = 0
    bytes: int = 0
    steps: tuple[Step, ...] = ()


class PartWriter(Protocol):
    """Applies one part of one sink; long-lived, reused for later epochs."""

    def marker(self, *, durable: bool = False) -> Marker | None:
        """Return the committed marker, None if there is none; never the marker of an open transaction.

        Args:
            durable: where the marker has expired, return the durable one; only for sinks whose
                binding has `durable_markers`. False: it is expected that the part has no marker.
        """

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        """Write all rows and the marker in one transaction, unless the marker forbids it.

        Raises:
            SinkUnavailable: in doubt; open a new writer and call again.
            SinkRejected: the sink in its present state will never accept these rows.
            Fenced, SinkRegressed, MarkerMismatch: see `markers.compare_marker`.
        """

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""


class BoundSink(Protocol):
    """A sink that was checked against its target and the rows' schema. Picklable."""

    @property
    def id(self) -> str:
        """The sink's id, unique in the job."""

    @property
    def binding(self) -> SinkBinding:
        """What the epoch record stores of it."""

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """Staged column names and their Spark SQL expressions, in order; the JVM evaluates them."""

    @property
    def part_expression(self) -> str | None:
        """Spark SQL expression of a row's part (an int below `binding.parts`); None for one part.

        Rows with the same key must share a part: a key in two parts deadlocks and loses its order.
        """

    @property
    def refresh_every_s(self) -> float | None:
        """Seconds after which the marker of a part that nobody has opened may have expired.

        Opening a writer refreshes the marker. None if markers never expire.
        """

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """Return for each row why it cannot be written, null if it can; None if all rows can.

        Args:
            batch: the staged columns of `expressions`.
        """

    def open(self, part: int) -> PartWriter:
        """Return a writer for a part; it fences every earlier writer of the same part."""


class Sink(Protocol):
    """What a user writes. Frozen, picklable, without a connection."""

    redoable: ClassVar[bool]
    """Whether records may be applied again to a sink that was reset to an older state."""

    @property
    def id(self) -> str:
        """The sink's id, unique in the job and stable across restarts."""

    @property
    def of(self) -> str | None:
        """The output of the job that it writes, if there are several."""

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundSink:
        """Check the target against the rows and prepare for markers: the preflight.

        Raises:
            PreflightFailed: or one of its kinds: TargetMissing, SchemaMismatch, AccessDenied,
                TransactionTimeoutInvalid.
            SinkUnavailable: the server does not answer.
        """


def quoted(name: str) -> str:
    """Return a name in backticks, as both Spark SQL and MySQL quote it."""
    return f"`{name.replace('`', '``')}`"
