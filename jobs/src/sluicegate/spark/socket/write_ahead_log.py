"""The write-ahead log of received lines, which cannot be received a second time.

Segments `received/<number>` of the checkpoint, each created once and durable when `append` returns. An
epoch covers the segments from one number to another, so a replay reads the same lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sluicegate.errors import EpochLogBroken, Fenced
from sluicegate.storage.arrow_encoding import decode_batches, encode_batches
from sluicegate.storage.object_store import ObjectStore

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
    """The log of one checkpoint."""

    def __init__(self, checkpoint: ObjectStore) -> None:
        self._store = checkpoint

    def append(self, number: int, lines: Sequence[Line], receiver: str, peer: str = "") -> None:
        """Make lines, received from the address `peer`, durable as a segment.

        A retry resolves a lost reply: an existing segment of the same receiver is ours (rule 1).

        Raises:
            Fenced: another receiver has logged a segment with this number.
            StoreUnavailable: no reply; call again with the same number and lines.
        """
        if self._store.create(_name(number), _encode(lines, receiver, peer)):
            return
        stored = self._store.read(_name(number))
        if stored is None or _label(next(decode_batches(stored)), _RECEIVER) != receiver:
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
        return next(decode_batches(stored))

    def newest(self) -> int:
        """Return the number of the newest segment, 0 if there is none."""
        return max(self._numbers(_PREFIX), default=0)

    def planned(self) -> int:
        """Return the last segment that is part of an epoch, decided or not; 0 if none is."""
        newest = max(self._numbers("offsets/"), default=None)
        return 0 if newest is None else self._position(newest)

    def unplanned(self) -> dict[int, int]:
        """Return the segments that are not part of an epoch yet: number -> number of lines."""
        planned = self.planned()
        waiting = sorted(number for number in self._numbers(_PREFIX) if number > planned)
        return {number: self.read(number).num_rows for number in waiting}

    def end(self) -> int:
        """Return the last number that was ever used.

        If a power failure lost the name of a segment, Spark's offsets may still contain its number.
        It must not be used again, or the lines of the new segment would count as processed.
        """
        return max(self.newest(), self.planned())

    def prune(self) -> None:
        """Remove the segments that no epoch can need again, but never the newest.

        A restored checkpoint may go back to the oldest epoch whose offsets Spark retains, if it is
        committed and so decided: the segments after that epoch are needed.
        """
        retained, committed = self._numbers("offsets/"), self._numbers("commits/")
        oldest = min((epoch for epoch in retained if epoch in committed), default=None)
        if oldest is None or oldest != min(retained):
            return
        through = self._position(oldest)
        for number in sorted(self._numbers(_PREFIX))[:-1]:
            if number <= through:
                self._store.delete(_name(number))

    def _numbers(self, prefix: str) -> set[int]:
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
    return _label(lines, _PEER)


def _label(lines: pa.RecordBatch, key: bytes) -> str:
    return bytes((lines.schema.metadata or {}).get(key, b"")).decode()


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
    return encode_batches(schema, [pa.RecordBatch.from_arrays(arrays, schema=schema)])
