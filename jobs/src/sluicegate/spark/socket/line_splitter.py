"""Splits a stream of bytes into lines; pure.

A line ends at a line feed and consists of all bytes before it: nothing is decoded, and a carriage
return is kept. Of an overlong line only the start is kept, with length and hash of the whole line, so
that memory is bounded whatever the peer sends.
"""

from __future__ import annotations

import hashlib

from sluicegate.spark.socket.write_ahead_log import Line

_NEWLINE = b"\n"


class LineSplitter:
    """Splits the bytes of one connection.

    Args:
        limit_bytes: a longer line is overlong.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._start = bytearray()
        self._length = 0
        self._hash = hashlib.sha256()

    def feed(self, data: bytes, now_us: int) -> list[Line]:
        """Return the lines that these bytes complete."""
        *whole, rest = data.split(_NEWLINE)
        lines = []
        for piece in whole:
            if self._length or len(piece) > self._limit:
                self._append(piece)
                lines.append(self._finish(now_us, None))
            else:
                lines.append(Line(piece, now_us))
        self._append(rest)
        return lines

    def close(self, now_us: int, torn: str | None = None) -> list[Line]:
        """Return the line after the last line feed, if there is one.

        Args:
            now_us: the time in microseconds since 1970.
            torn: why the connection broke within the line; None if the peer closed it, which
                completes the line.
        """
        reason = None if torn is None else f"torn: {torn}"
        return [self._finish(now_us, reason)] if self._length else []

    def _append(self, piece: bytes) -> None:
        self._start += piece[: self._limit - len(self._start)]
        self._hash.update(piece)
        self._length += len(piece)

    def _finish(self, now_us: int, broken: str | None) -> Line:
        content, length, digest = bytes(self._start), self._length, self._hash.hexdigest()
        self._start, self._length, self._hash = bytearray(), 0, hashlib.sha256()
        if length <= self._limit:
            return Line(content, now_us, broken)
        overlong = f"overlong: the line has {length} bytes, the limit is {self._limit}"
        return Line(content, now_us, broken or overlong, length, digest)
