"""The write-ahead log of received lines, which cannot be received a second time.

Segments `received/<number>` of the checkpoint, each created once and durable when `append` returns. An
epoch covers the segments from one number to another, so a replay reads the same lines.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sluicegate.errors import EpochLogBroken, Fenced
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

OFFSET_KEY = "received"
"""The key of a position in the log, in the offsets that Spark stores for the source."""

_PREFIX = "received/"
_DIGITS = 16
_RECEIVER, _PEER = b"receiver", b"peer"

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
        content: its bytes without the newline; of an overlong line only the start.
        received_us: when its end was received, in microseconds since 1970.
        broken: why the line is incomplete or overlong, None for a valid line.
        length: length of an overlong line in bytes; 0: the length of `content`.
        sha256: of the whole line, hexadecimal, if `content` is only a part of it.
    """

    content: bytes
    received_us: int
    broken: str | None = None
    length: int = 0
    sha256: str | None = None


class WriteAheadLog:
    """The log of one checkpoint.

    Args:
        checkpoint: its store.
    """

    def __init__(self, checkpoint: ObjectStore) -> None:
        self._store = checkpoint

    def append(self, number: int, lines: Sequence[Line], receiver: str, peer: str = "") -> None:
        """Make lines durable as a segment.

        A retry resolves a lost reply: an existing segment of the same receiver is ours (rule 1).

        Args:
            number: the segment's number.
            lines: the lines.
            receiver: id of the receiver.
            peer: the address that the lines came from.

        Raises:
            Fenced: another receiver has logged a segment with this number.
            StoreUnavailable: no reply; call again with the same number and lines.
        """
        if self._store.create(_name(number), _encode(lines, receiver, peer)):
            return
        stored = self._store.read(_name(number))
        if stored is None or _receiver_of(stored) != receiver:
            raise fenced(f"another driver wrote segment {number} of the log of received lines")

    def read(self, number: int) -> pa.RecordBatch:
        """Return a segment's lines; `source.SCHEMA_DDL` describes the columns.

        Raises:
            EpochLogBroken: the segment does not exist.
        """
        stored = self._store.read(_name(number))
        if stored is None:
            raise EpochLogBroken(
                f"segment {number} of the log of received lines is missing",
                data="its lines cannot be received again; the epoch that contains them is undecided",
                do=f"restore {_name(number)} of the checkpoint from a backup, then restart the job",
            )
        with pa.ipc.open_stream(stored) as reader:
            return reader.read_next_batch()

    def newest(self) -> int:
        """Return the number of the newest segment, 0 if there is none."""
        return max(self._numbers(), default=0)

    def planned(self) -> int:
        """Return the last segment that is part of an epoch, decided or not; 0 if none is."""
        newest = max(self._epochs("offsets/"), default=None)
        return 0 if newest is None else self._position(newest)

    def unplanned(self) -> dict[int, int]:
        """Return the segments that are not part of an epoch yet: number -> number of lines."""
        planned = self.planned()
        return {
            number: self.read(number).num_rows
            for number in sorted(self._numbers())
            if number > planned
        }

    def end(self) -> int:
        """Return the last number that was ever used.

        If a power failure lost the name of a segment, Spark's offsets may still contain its number.
        It must not be used again, or the lines of the new segment would count as processed.
        """
        return max(self.newest(), self.planned())

    def prune(self) -> None:
        """Remove the segments that no epoch can need again.

        The segments after the oldest epoch whose offsets Spark retains are needed, because a restored
        checkpoint may go back to that epoch, which is committed and so decided. The newest segment
        is retained too.
        """
        retained, committed = self._epochs("offsets/"), self._epochs("commits/")
        oldest = min((epoch for epoch in retained if epoch in committed), default=None)
        if oldest is None or oldest != min(retained):
            return
        through, numbers = self._position(oldest), set(self._numbers())
        for number in sorted(numbers - {max(numbers, default=0)}):
            if number <= through:
                self._store.delete(_name(number))

    def _numbers(self) -> Iterator[int]:
        tails = (name.removeprefix(_PREFIX) for name in self._store.names(_PREFIX))
        return (int(tail) for tail in tails if tail.isdecimal())

    def _epochs(self, prefix: str) -> set[int]:
        tails = (name.removeprefix(prefix) for name in self._store.names(prefix))
        return {int(tail) for tail in tails if tail.isdecimal()}

    def _position(self, epoch: int) -> int:
        """Return the position in the offsets of an epoch; 0 if Spark has just pruned them."""
        stored = self._store.read(f"offsets/{epoch}") or b""
        # the version, the epoch's settings, then one line per source
        for line in stored.decode().splitlines()[2:]:
            offset = json.loads(line) if line.startswith("{") else {}
            if OFFSET_KEY in offset:
                return int(offset[OFFSET_KEY])
        return 0


def fenced(what: str) -> Fenced:
    """Return the error of a receiver that found another one."""
    return Fenced(
        what,
        data="lines that this driver has logged remain; lines that it received but did not log are lost",
        do="run one driver per checkpoint; do not restart this one next to the other",
    )


def _name(number: int) -> str:
    return f"{_PREFIX}{number:0{_DIGITS}d}"


def peer_of(lines: pa.RecordBatch) -> str:
    """Return the address that a segment's lines came from."""
    return bytes((lines.schema.metadata or {}).get(_PEER, b"")).decode()


def _encode(lines: Sequence[Line], receiver: str, peer: str) -> bytes:
    columns = [
        [line.content for line in lines],
        [line.broken for line in lines],
        [line.length or len(line.content) for line in lines],
        [line.sha256 for line in lines],
        [line.received_us for line in lines],
    ]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, _SCHEMA, strict=True)]
    schema = _SCHEMA.with_metadata({_RECEIVER: receiver.encode(), _PEER: peer.encode()})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema, options=_OPTIONS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    encoded: bytes = out.getvalue().to_pybytes()
    return encoded


def _receiver_of(stored: bytes) -> str:
    with pa.ipc.open_stream(stored) as reader:
        metadata = reader.schema.metadata or {}
    return bytes(metadata.get(_RECEIVER, b"")).decode()
