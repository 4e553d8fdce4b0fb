"""What the epoch log stores: the record that decides an epoch, the seal that ends a lineage.

A record is a magic line, the length of a JSON header, the header, and the inline chunks one after
another. A seal is a magic line and JSON. Both end with the SHA-256 of everything before it, so a torn
or changed object is never mistaken for a decision. `sealing` defines when a seal may be created.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sluicegate.errors import EpochLogBroken, Sealed
from sluicegate.protocol.markers import NO_MARKER, Marker

MAGIC = b"sluicegate-epoch-1\n"
SEAL_MAGIC = b"sluicegate-seal-1\n"
_LENGTH = struct.Struct(">Q")
_DIGEST_BYTES = 32

ROWS_IN = "rows_in"
"""A key of `EpochRecord.counts`: rows that the sources delivered."""
STATE_ROWS = "state_rows"
"""A key of `EpochRecord.counts`: rows in the state of the plan's operators after the epoch."""
DEAD_LETTERS = "dead_letters_"
"""A prefix of keys of `EpochRecord.counts`, followed by a kind, the first word of the reason: the
number of dead letters of that kind."""

Chain = Mapping[str, Mapping[int, Marker]]
"""Sink id -> part -> the marker of the part after everything so far is applied."""


@dataclass(frozen=True)
class Chunk:
    """Staged rows of one part of one sink, encoded by one task as Arrow IPC.

    Args:
        sink: the sink's id.
        part: the part of the sink that applies it; a part is one transaction.
        order: the position among the part's chunks (task, then sequence within the task).
        rows: number of rows.
        size: size in bytes as stored.
        sha256: of the bytes as stored, hexadecimal.
        inline: the bytes if the record contains them, else None.
        name: the object's name in the staging area; None if inline.
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
        """Return `stored` if these are the bytes that were decided; otherwise raises EpochLogBroken."""
        if hashlib.sha256(stored).hexdigest() != self.sha256:
            raise EpochLogBroken(
                f"chunk {self.name or 'inline'} of sink {self.sink} has other bytes than were decided",
                data="the epoch is decided and cannot be applied; none of its rows were written",
                do="restore the object from the store's versions or a backup",
            )
        return stored


@dataclass(frozen=True)
class SinkBinding:
    """What a record stores about a sink, so that a replay cannot write elsewhere (rule 4).

    Args:
        kind: 'kafka', 'mysql', ...
        target: what it writes to, such as 'topic ip_count_sink'; compared on replay.
        parts: the number of parts (transactions) that apply it.
        marker_key: the key under which the sink stores its markers.
        cluster: the id of the servers that store rows and markers; empty if it is unknown, as in
            records of earlier versions, or if the sink's markers never expire.
        durable_markers: the sink's markers may expire, and it also stores each where it does not;
            False in records of earlier versions.
        form: how the sink writes staged rows, if the same rows can be written in several ways; rows are
            written in no other than was decided. Empty if they cannot, or if it is unknown, as in
            records of earlier versions.
    """

    kind: str
    target: str
    parts: int
    marker_key: str
    cluster: str = ""
    durable_markers: bool = False
    form: str = ""

    def is_same_sink(self, other: SinkBinding | None) -> bool:
        """Return whether another binding writes to the same place; an unknown cluster may be any."""
        if other is None or self.is_other_cluster(other):
            return False
        return self.target == other.target and self.has_same_markers(other)

    def has_same_markers(self, other: SinkBinding) -> bool:
        """Return whether another binding has the same markers, perhaps of another target or cluster."""
        ours, theirs = (
            (binding.kind, binding.parts, binding.marker_key) for binding in (self, other)
        )
        return ours == theirs

    def is_other_cluster(self, other: SinkBinding) -> bool:
        """Return whether both clusters are known and differ."""
        return bool(self.cluster and other.cluster) and self.cluster != other.cluster


@dataclass(frozen=True)
class EventTime:
    """Event-time statistics of one watermark operator in the staged plan, in ms (rule 16)."""

    max_ms: int
    min_ms: int
    avg_ms: float
    count: int


@dataclass(frozen=True)
class EpochRecord:
    """The decision of one epoch; see step "decide" and rule 4 in docs/concepts/protocol.md.

    Args:
        lineage: the random id of the checkpoint's history.
        job: the job's name.
        epoch: Spark's batch id.
        attempt: the random id of the decided attempt.
        delivery: one of the guarantees in `sluicegate.settings.epoch`.
        offsets_digest: SHA-256 of Spark's `offsets/N`, hexadecimal.
        sinks: sink id -> what it is bound to.
        prev: for every part of every sink, the marker before this epoch.
        chunks: the staged rows.
        event_times: one per watermark operator, in the plan's order.
        decided_at_ms: the driver's clock in ms since 1970, informational.
        traceparent: W3C trace context of the epoch, empty if it is not traced.
        counts: numbers for people (rows in, dead letters, ...).
        overlapped: Spark may commit the epoch before it is applied (`Job.overlap`).
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
        """The marker of every part with rows after the epoch is applied."""
        return Marker(self.epoch, self.attempt)

    def part_chunks(self, sink: str, part: int) -> tuple[Chunk, ...]:
        """Return the chunks of one part in the order in which they are written."""
        chunks = (c for c in self.chunks if c.sink == sink and c.part == part)
        return tuple(sorted(chunks, key=lambda c: c.order))

    def parts_with_rows(self, sink: str) -> tuple[int, ...]:
        """Return the parts of a sink that this epoch writes; the others keep their marker (rule 5)."""
        return tuple(sorted({c.part for c in self.chunks if c.sink == sink}))

    def prev_of(self, sink: str, part: int) -> Marker:
        """Return the marker of a part before this epoch is applied."""
        return self.prev.get(sink, {}).get(part, NO_MARKER)

    def chain(self) -> dict[str, dict[int, Marker]]:
        """Return the markers after this epoch is applied: the next record's `prev`."""
        after = {sink: dict(parts) for sink, parts in self.prev.items()}
        for chunk in self.chunks:
            after.setdefault(chunk.sink, {})[chunk.part] = self.marker
        return after

    def rows(self, sink: str) -> int:
        """Return the number of rows that this epoch writes to a sink."""
        return sum(c.rows for c in self.chunks if c.sink == sink)


def encode(record: EpochRecord) -> bytes:
    """Return the stored form of a record."""
    header = asdict(record)
    for chunk in header["chunks"]:
        chunk["inline"] = chunk["inline"] is not None
    packed = json.dumps(header, separators=(",", ":")).encode()
    inline = b"".join(chunk.inline or b"" for chunk in record.chunks)
    return _with_digest(MAGIC + _LENGTH.pack(len(packed)) + packed + inline)


def decode(stored: bytes) -> EpochRecord:
    """Return the record in `stored`; raises EpochLogBroken if it is torn, changed or of another format."""
    body = _verified(stored, MAGIC)
    try:
        return _decoded(body)
    except (LookupError, TypeError, ValueError, struct.error) as error:
        # the digest is right, so it is not torn: fields of another version with the same magic
        raise _broken(MAGIC) from error


def _decoded(body: bytes) -> EpochRecord:
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    header: dict[str, Any] = json.loads(body[_LENGTH.size : end])
    header["chunks"] = tuple(_chunks(header["chunks"], body, end))
    header["event_times"] = tuple(EventTime(**e) for e in header["event_times"])
    header["sinks"] = parse_sinks(header["sinks"])
    header["prev"] = parse_chain(header["prev"])
    return EpochRecord(**header)


def parse_sinks(sinks: Mapping[str, Any]) -> dict[str, SinkBinding]:
    """Return bindings by sink from their form in JSON."""
    return {sink: SinkBinding(**binding) for sink, binding in sinks.items()}


def parse_chain(chain: Mapping[str, Any]) -> Chain:
    """Return a chain from its form in JSON, where the numbers of parts are strings."""
    return {
        sink: {int(part): Marker(**marker) for part, marker in parts.items()}
        for sink, parts in chain.items()
    }


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


@dataclass(frozen=True)
class DecidedEpoch:
    """A decided epoch that this process applies."""

    record: EpochRecord
    replayed: bool
    """Whether an earlier attempt or another driver decided it."""


@dataclass(frozen=True)
class Seal:
    """The end of a lineage.

    Args:
        id: the random id of the attempt at sealing; it identifies the seal's creator.
        lineage: the sealed lineage.
        job: the job's name.
        epoch: the first epoch that can never be decided.
        why: the reason, for people, with the address of the savepoint that moved the job.
        sealed_at_ms: the creator's clock in ms since 1970, informational.
    """

    id: str
    lineage: str
    job: str
    epoch: int
    why: str
    sealed_at_ms: int

    def error(self) -> Sealed:
        """Return the error with which a driver stops when it finds the seal."""
        return Sealed(
            f"lineage {self.lineage} of job {self.job} was sealed after epoch {self.epoch - 1}: "
            f"{self.why}",
            data="everything that was decided before is in every sink; this start wrote nothing, and "
            "nothing more can be decided here",
            do="run the job on the checkpoint that was restored from the savepoint; if there is "
            "none, take a savepoint of this checkpoint and restore it",
        )


def encode_seal(seal: Seal) -> bytes:
    """Return the stored form of a seal."""
    return _with_digest(SEAL_MAGIC + json.dumps(asdict(seal)).encode())


def is_seal(stored: bytes) -> bool:
    """Return whether an object of the epoch log is a seal, intact or not, and not a record."""
    return stored.startswith(SEAL_MAGIC)


def decode_seal(stored: bytes) -> Seal:
    """Return the seal in `stored`; raises EpochLogBroken as `decode`."""
    body = _verified(stored, SEAL_MAGIC)
    try:
        return Seal(**json.loads(body))
    except (TypeError, ValueError) as error:
        raise _broken(SEAL_MAGIC) from error


def _with_digest(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def _verified(stored: bytes, magic: bytes) -> bytes:
    """Return the content between the magic line and the digest."""
    body, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    if not stored.startswith(magic) or hashlib.sha256(body).digest() != digest:
        raise _broken(magic)
    return body.removeprefix(magic)


def _broken(magic: bytes) -> EpochLogBroken:
    seal = magic == SEAL_MAGIC
    return EpochLogBroken(
        f"{'a seal' if seal else 'an epoch record'} is torn, changed, or was written by another version",
        data="nothing can be decided after it, so nothing is written"
        if seal
        else "its decision is unknown, so nothing is written",
        do="restore the object, or run the version of Sluicegate that wrote it",
    )
