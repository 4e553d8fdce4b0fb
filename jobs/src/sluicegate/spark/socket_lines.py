"""Cuts a stream of bytes into lines. Pure; called by `socket_receiver`.

A line ends at a line feed and is what stands before it, byte for byte: nothing is decoded, and a
carriage return stays. Of an overlong line only the begin is kept, with the length and the hash of
the whole, so that memory is bounded whatever the peer sends.
"""

from __future__ import annotations

import hashlib

from sluicegate.storage.receipts import Line

_NEWLINE = b"\n"


class LineCutter:
    """Cuts the bytes of one connection.

    Args:
        limit_bytes: a longer line is overlong.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._begin = bytearray()
        self._length = 0
        self._hash = hashlib.sha256()

    def feed(self, data: bytes, now_us: int) -> list[Line]:
        """Return the lines that these bytes complete."""
        *whole, rest = data.split(_NEWLINE)
        lines = []
        for piece in whole:
            if self._length or len(piece) > self._limit:
                self._take(piece)
                lines.append(self._cut(now_us, None))
            else:
                lines.append(Line(piece, now_us))
        self._take(rest)
        return lines

    def close(self, now_us: int, torn: str | None = None) -> list[Line]:
        """Return what came after the last line feed, if anything did.

        Args:
            now_us: the time.
            torn: why the connection broke within the line; None where the peer closed it: then
                the rest is a line.
        """
        reason = None if torn is None else f"torn: {torn}"
        return [self._cut(now_us, reason)] if self._length else []

    def _take(self, piece: bytes) -> None:
        self._begin += piece[: self._limit - len(self._begin)]
        self._hash.update(piece)
        self._length += len(piece)

    def _cut(self, now_us: int, broken: str | None) -> Line:
        content, length, digest = bytes(self._begin), self._length, self._hash.hexdigest()
        self._begin, self._length, self._hash = bytearray(), 0, hashlib.sha256()
        if length <= self._limit:
            return Line(content, now_us, broken)
        said = f"overlong: the line has {length} bytes, the limit is {self._limit}"
        return Line(content, now_us, broken or said, length, digest)
