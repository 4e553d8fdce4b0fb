"""The epoch record: the one object whose creation decides an epoch, and its bytes.

Not here: where it is stored. Layout of the bytes: a magic line, the length of a JSON header,
the header, then the inline chunks one after another; the last 32 bytes are the SHA-256 of all
before them, so a torn or changed record is never taken for a decision.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sluicegate.protocol.errors import EpochLogBroken
from sluicegate.protocol.markers import GENESIS, Marker

MAGIC = b"sluicegate-epoch-1\n"
_LENGTH = struct.Struct(">Q")
_DIGEST_BYTES = 32

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
"""Decided and replayed from the record, without markers: a repeated apply repeats its rows."""
AT_MOST_ONCE = "at-most-once"
"""Applied by the process that decided, once; what that one did not finish is lost."""

ROWS_IN = "rows_in"
"""In `EpochRecord.counts`: rows that the sources gave."""
LETTERS = "dead_letters_"
"""The same: followed by a kind, the first word of the reasons; how many dead letters are of it."""

Chain = Mapping[str, Mapping[int, Marker]]
"""Sink id -> part -> the marker that the part holds once everything so far is applied."""


@dataclass(frozen=True)
class Chunk:
    """Staged rows of one part of one sink, made by one task: sink-ready Arrow IPC.

    Args:
        sink: the sink's id.
        part: the part of the sink that applies it; a part is one transaction.
        order: the place among the part's chunks (task, then sequence within the task).
        rows: number of rows.
        size: bytes as stored.
        sha256: of the bytes as stored, hexadecimal.
        inline: the bytes, where they travel inside the record; else None.
        name: the object's name in the staging area; None where inline.
    """

    sink: str
    part: int
    order: tuple[int, int]
    rows: int
    size: int
    sha256: str
    inline: bytes | None = None
    name: str | None = None

    def verify(self, stored: bytes) -> bytes:
        """Return `stored` if these are the bytes that were decided.

        Raises:
            EpochLogBroken: they are not.
        """
        if len(stored) != self.size or hashlib.sha256(stored).hexdigest() != self.sha256:
            raise EpochLogBroken(
                f"chunk {self.name or 'inline'} of sink {self.sink} has other bytes than were decided",
                data="the epoch is decided and cannot be applied; nothing was written from it",
                do="restore the object from the store's versions or a backup",
            )
        return stored


@dataclass(frozen=True)
class SinkBinding:
    """What a record says of one sink, so that a replay cannot be sent elsewhere (rule 4).

    Args:
        kind: 'kafka', 'mysql', ...
        target: what it writes to, such as 'topic ip_count_sink'; compared on replay.
        parts: how many parts (transactions) it may be applied in.
        marker_key: under which key the sink keeps its markers.
    """

    kind: str
    target: str
    parts: int
    marker_key: str


@dataclass(frozen=True)
class EventTime:
    """Event-time statistics of one watermark operator in the staged plan, in ms (rule 16)."""

    max_ms: int
    min_ms: int
    avg_ms: float
    count: int


@dataclass(frozen=True)
class EpochRecord:
    """The decision of one epoch. See DESIGN.md section 2, step 2, and rule 4.

    Args:
        lineage: the history of one checkpoint, a random id.
        job: the job's name.
        epoch: Spark's batch id.
        attempt: the try that was decided, a random id.
        delivery: EXACTLY_ONCE, AT_LEAST_ONCE or AT_MOST_ONCE.
        offsets_digest: SHA-256 of Spark's `offsets/N`, hexadecimal.
        sinks: sink id -> what it is bound to.
        prev: for every part of every sink the marker that is there before this epoch.
        chunks: the staged rows.
        event_times: one per watermark operator, in the plan's order.
        decided_at_ms: the driver's clock, ms since 1970, for people only.
        traceparent: W3C trace context of the epoch, empty if not traced.
        counts: numbers for people (rows in, dead letters, ...).
        overlapped: Spark may count the epoch as done before it is applied (`Job.overlap`).
    """

    lineage: str
    job: str
    epoch: int
    attempt: str
    delivery: str
    offsets_digest: str
    sinks: Mapping[str, SinkBinding]
    prev: Chain
    chunks: tuple[Chunk, ...] = ()
    event_times: tuple[EventTime, ...] = ()
    decided_at_ms: int = 0
    traceparent: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    overlapped: bool = False

    @property
    def marker(self) -> Marker:
        """What every part with rows holds once it is applied."""
        return Marker(self.epoch, self.attempt)

    def part_chunks(self, sink: str, part: int) -> tuple[Chunk, ...]:
        """Return the chunks of one part in the order in which they are written."""
        mine = (c for c in self.chunks if c.sink == sink and c.part == part)
        return tuple(sorted(mine, key=lambda c: c.order))

    def parts_with_rows(self, sink: str) -> tuple[int, ...]:
        """Return the parts of a sink that this epoch moves; others keep their marker (rule 5)."""
        return tuple(sorted({c.part for c in self.chunks if c.sink == sink}))

    def prev_of(self, sink: str, part: int) -> Marker:
        """Return the marker that the part holds before this epoch is applied."""
        return self.prev.get(sink, {}).get(part, GENESIS)

    def chain(self) -> dict[str, dict[int, Marker]]:
        """Return the markers that are there once this epoch is applied: the next record's `prev`."""
        after = {sink: dict(parts) for sink, parts in self.prev.items()}
        for chunk in self.chunks:
            after.setdefault(chunk.sink, {})[chunk.part] = self.marker
        return after

    def rows(self, sink: str) -> int:
        """Return how many rows this epoch brings to a sink."""
        return sum(c.rows for c in self.chunks if c.sink == sink)

    def inline_only(self) -> bool:
        """Say whether the record itself carries every row."""
        return all(c.inline is not None for c in self.chunks)


def encode(record: EpochRecord) -> bytes:
    """Return the bytes that are stored for a record."""
    header = asdict(record)
    blobs = [chunk.pop("inline") for chunk in header["chunks"]]
    for chunk, blob in zip(header["chunks"], blobs, strict=True):
        chunk["inline"] = blob is not None
    packed = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join(
        [MAGIC, _LENGTH.pack(len(packed)), packed, *(b for b in blobs if b is not None)]
    )
    return body + hashlib.sha256(body).digest()


def decode(stored: bytes) -> EpochRecord:
    """Return the record in `stored`.

    Raises:
        EpochLogBroken: the bytes are torn, changed, or of a format that is not known here.
    """
    body, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    if not stored.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        raise _unreadable()
    try:
        return _decoded(body)
    except (LookupError, TypeError, ValueError, struct.error) as error:
        # whole, so not torn: another version's fields under the same magic
        raise _unreadable() from error


def _unreadable() -> EpochLogBroken:
    return EpochLogBroken(
        "an epoch record is torn, changed, or was written by another version",
        data="what it decided is unknown, so nothing is written",
        do="restore the object, or run the version of Sluicegate that wrote it",
    )


def _decoded(body: bytes) -> EpochRecord:
    at = len(MAGIC) + _LENGTH.size
    (length,) = _LENGTH.unpack(body[len(MAGIC) : at])
    header: dict[str, Any] = json.loads(body[at : at + length])
    header["chunks"] = tuple(_chunks(header["chunks"], body, at + length))
    header["event_times"] = tuple(EventTime(**e) for e in header["event_times"])
    header["sinks"] = {sink: SinkBinding(**b) for sink, b in header["sinks"].items()}
    header["prev"] = {
        sink: {int(part): Marker(**m) for part, m in parts.items()}
        for sink, parts in header["prev"].items()
    }
    return EpochRecord(**header)


def _chunks(headers: list[dict[str, Any]], body: bytes, at: int) -> Iterator[Chunk]:
    for header in headers:
        inline = None
        if header.pop("inline"):
            inline = body[at : at + header["size"]]
            at += header["size"]
        order = header.pop("order")
        chunk = Chunk(**header, order=(order[0], order[1]), inline=inline)
        if inline is not None:
            chunk.verify(inline)
        yield chunk
