"""What a sink is: three small classes, and what is not guaranteed to be called.

A `Sink` is what a user writes: a frozen, picklable description. Its `bind` is the preflight: it
talks to the server, checks the target against the rows and returns a `BoundSink`. That travels
to the executors, where `refusals` looks at staged rows and `open` gives the `PartWriter` that
applies them.

Traps, all of them tested by tests/contract:

- `apply` may be called any number of times for one record, from several processes at once, long
  after staging, and for a record that is in already. Exactly one call's rows become visible.
- `close` may never be called: processes are killed. Nothing may depend on it.
- A writer that raised must be usable again by a new `open`; it need not be usable itself.
- `refusals` runs on executors, before the decision; `apply` after it. What `refusals` let
  through, `apply` must be able to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa

from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.protocol.record import SinkBinding

Reach = Callable[[str], None]
"""Called by a writer at 'apply-begun', 'apply-written', 'before-commit' and 'after-commit'."""


@dataclass(frozen=True)
class PartDecision:
    """What is decided for one part of a sink: the order to write it.

    Args:
        lineage: the history that the markers belong to.
        this: the marker that the part holds afterwards.
        prev: the marker that it holds before.
        markers: False for at-least-once: write without looking at or moving a marker.
        traceparent: W3C trace context of the epoch, empty if not traced.
        reach: failpoint hook.
    """

    lineage: str
    this: Marker
    prev: Marker
    markers: bool = True
    traceparent: str = ""
    reach: Reach = field(default=lambda _point: None)


@dataclass(frozen=True)
class Step:
    """One timed step of an apply ('begin', 'write', 'flush', 'commit'), ns since 1970."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Receipt:
    """What an apply did."""

    verdict: Verdict
    rows: int = 0
    bytes: int = 0
    steps: tuple[Step, ...] = ()


class PartWriter(Protocol):
    """The connection that applies one part of one sink; long-lived, kept between epochs."""

    def marker(self) -> Marker | None:
        """Return the committed marker, None if there is none. Never one of an open transaction."""

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        """Write all rows and the marker in one transaction, unless the marker says otherwise.

        Raises:
            SinkUnavailable: in doubt; open a new writer and call again.
            SinkRejected: the sink will never take these rows as it is.
            Fenced, SinkWentBack, MarkerMismatch: see `markers.judge`.
        """

    def close(self) -> None:
        """Let go of the connection; an open transaction is rolled back."""


class BoundSink(Protocol):
    """A sink that has seen its target and the rows' schema. Picklable."""

    @property
    def id(self) -> str:
        """The sink's id, unique in the job."""

    @property
    def binding(self) -> SinkBinding:
        """What the epoch record says of it."""

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """Staged column name and Spark SQL expression, in order; evaluated in the JVM."""

    @property
    def part_expression(self) -> str | None:
        """Spark SQL expression of a row's part (an int below `binding.parts`); None for one part.

        Rows that share a key must share a part: keys in two parts deadlock, and lose their order.
        """

    @property
    def refresh_every_s(self) -> float | None:
        """How often a new writer must be opened for each part, so that no marker expires.

        None where markers last for ever.
        """

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """Say per row why it cannot be written, null where it can; None if all can.

        Args:
            batch: the staged columns of `expressions`.
        """

    def open(self, part: int) -> PartWriter:
        """Return a writer for a part; it fences every earlier writer of the same part."""


class Sink(Protocol):
    """What a user writes. Frozen, picklable, knows no connection."""

    redoable: ClassVar[bool]
    """Whether older records may be applied again to a sink that has gone back in time."""

    @property
    def id(self) -> str:
        """The sink's id, unique in the job and stable over restarts."""

    @property
    def of(self) -> str | None:
        """Which output of the job it takes, where there are several."""

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundSink:
        """Check the target against the rows and make ready for markers: the preflight.

        Raises:
            PreflightFailed: or one of its kinds: TargetMissing, SchemaMismatch, AccessDenied,
                TransactionTimeoutInvalid.
            SinkUnavailable: the server does not answer.
        """
