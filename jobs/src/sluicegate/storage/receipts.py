"""The receipt log: what came in over a connection that cannot be read again, before it is processed.

Segments `received/<number>` of the checkpoint volume, each created once and durable when `append`
returns; an epoch covers the segments from one number to another, so a replay reads the same lines.
Not here: the connection (`spark.socket_receiver`) and Spark's side (`spark.socket_source`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sluicegate.protocol.errors import EpochLogBroken, Fenced
from sluicegate.storage.objects import Objects

log = logging.getLogger(__name__)

OFFSET_KEY = "received"
"""The key of a position in the log, in the offsets that Spark keeps for the source."""

_PREFIX = "received/"
_DIGITS = 16
_RECEIVER = b"receiver"

_SCHEMA = pa.schema(
    [
        pa.field("line", pa.binary(), nullable=False),
        ("broken", pa.string()),
        pa.field("length", pa.int64(), nullable=False),
        ("sha256", pa.string()),
        pa.field("received_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


@dataclass(frozen=True)
class Line:
    """One received line.

    Args:
        content: its bytes without the newline; of an overlong line only the begin.
        received_us: when its end came, microseconds since 1970.
        broken: why it is no whole line, None if it is.
        length: bytes that the line had; of a whole line those of `content`.
        sha256: of the whole line, hexadecimal, where `content` is not all of it.
    """

    content: bytes
    received_us: int
    broken: str | None = None
    length: int = 0
    sha256: str | None = None


class ReceiptLog:
    """The receipt log of one checkpoint.

    Args:
        objects: the checkpoint volume.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def append(self, number: int, lines: Sequence[Line], receiver: str) -> None:
        """Make lines durable as a segment.

        A lost reply is settled by calling again: a segment of the same receiver is ours (rule 1).

        Raises:
            Fenced: another receiver has logged a segment of this number.
            StoreUnavailable: no answer; call again with the same number and lines.
        """
        if self._objects.create(_name(number), _encode(lines, receiver)):
            return
        stored = self._objects.read(_name(number))
        if stored is None or _receiver_of(stored) != receiver:
            raise fenced(f"segment {number} of the receipt log is another driver's")

    def read(self, number: int) -> pa.RecordBatch:
        """Return a segment's lines; see `SCHEMA_DDL` of the source for the columns.

        Raises:
            EpochLogBroken: it is not there.
        """
        stored = self._objects.read(_name(number))
        if stored is None:
            raise EpochLogBroken(
                f"segment {number} of the receipt log is gone",
                data="its lines cannot be received again; the epoch that has them is undecided",
                do=f"restore {_name(number)} of the checkpoint from a backup, and start the job again",
            )
        with pa.ipc.open_stream(stored) as reader:
            return reader.read_next_batch()

    def newest(self) -> int:
        """Return the number of the newest segment, 0 if there is none."""
        return max(self._numbers(), default=0)

    def planned(self) -> int:
        """Return the last segment that Spark has put into an epoch, decided or not; 0 if none."""
        newest = max(self._epochs("offsets/"), default=None)
        return 0 if newest is None else self._position(newest)

    def unplanned(self) -> dict[int, int]:
        """Return the segments that are in no epoch yet: number -> lines."""
        planned = self.planned()
        return {
            number: self.read(number).num_rows
            for number in sorted(self._numbers())
            if number > planned
        }

    def end(self) -> int:
        """Return the last number that was ever used.

        Spark's offsets know of a segment whose name a power cut took; its number is not used again,
        or its successor's lines would count as processed.
        """
        return max(self.newest(), self.planned())

    def prune(self) -> None:
        """Remove the segments that no epoch can need again.

        Needed are those after the oldest epoch whose offsets Spark still keeps, because a restored
        checkpoint may go back to it; that one is committed, and so decided. The newest segment stays.
        """
        kept, committed = self._epochs("offsets/"), self._epochs("commits/")
        oldest = min((epoch for epoch in kept if epoch in committed), default=None)
        if oldest is None or oldest != min(kept):
            return
        through, numbers = self._position(oldest), set(self._numbers())
        for number in sorted(numbers - {max(numbers, default=0)}):
            if number <= through:
                self._objects.delete(_name(number))

    def _numbers(self) -> Iterator[int]:
        tails = (name.removeprefix(_PREFIX) for name in self._objects.names(_PREFIX))
        return (int(tail) for tail in tails if tail.isdecimal())

    def _epochs(self, prefix: str) -> set[int]:
        tails = (name.removeprefix(prefix) for name in self._objects.names(prefix))
        return {int(tail) for tail in tails if tail.isdecimal()}

    def _position(self, epoch: int) -> int:
        """Return the position in Spark's offsets of an epoch; 0 if they were just pruned."""
        stored = self._objects.read(f"offsets/{epoch}") or b""
        # a version, the epoch's settings, then a line a source
        for line in stored.decode().splitlines()[2:]:
            offset = json.loads(line) if line.startswith("{") else {}
            if OFFSET_KEY in offset:
                return int(offset[OFFSET_KEY])
        return 0


def fenced(what: str) -> Fenced:
    """Return the error of a receiver that is not the only one."""
    return Fenced(
        what,
        data="what this driver has logged stays; lines that it had received and not logged are lost",
        do="keep one driver per checkpoint; this one must not be restarted beside the other",
    )


def _name(number: int) -> str:
    return f"{_PREFIX}{number:0{_DIGITS}d}"


def _encode(lines: Sequence[Line], receiver: str) -> bytes:
    columns = [
        [line.content for line in lines],
        [line.broken for line in lines],
        [line.length or len(line.content) for line in lines],
        [line.sha256 for line in lines],
        [line.received_us for line in lines],
    ]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, _SCHEMA, strict=True)]
    schema = _SCHEMA.with_metadata({_RECEIVER: receiver.encode()})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema, options=_OPTIONS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    encoded: bytes = out.getvalue().to_pybytes()
    return encoded


def _receiver_of(stored: bytes) -> str:
    with pa.ipc.open_stream(stored) as reader:
        metadata = reader.schema.metadata or {}
    return bytes(metadata.get(_RECEIVER, b"")).decode()
