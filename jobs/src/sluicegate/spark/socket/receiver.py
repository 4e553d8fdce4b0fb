"""Receives lines over TCP in a thread of the driver and logs them.

Every logged line is processed exactly once. TCP has no acknowledgement by the reader: lines that the
kernel has received but this thread has not logged are lost when the driver dies, and the sender does not
notice.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sluicegate import failpoints
from sluicegate.errors import SettingsInvalid, SluicegateError, StoreUnavailable
from sluicegate.settings.backoff import backoff_s
from sluicegate.spark.socket.write_ahead_log import Line, WriteAheadLog, fenced
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger("sluicegate.receiver")
T = TypeVar("T")

_POLL_S = 0.1
_RECEIVE_BYTES = 1 << 16
_CONNECT_S = 10.0
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.1, 10.0
_LOG_TRIES = 30
_PRUNE_EVERY_S = 10.0
_UNCHECKED_S = 5.0
"""After a pause this long another driver may have continued, and pruned the number that comes next."""


@dataclass(frozen=True)
class ReceiverLimits:
    """The limits of a receiver.

    Args:
        line_bytes: a longer line becomes a dead letter; default 1 MiB.
        ahead_lines: reading from the socket pauses while this many lines are not part of an epoch
            yet; default 200,000.
        segment_bytes: approximate size at which a segment of the log is closed; default 1 MiB.
        linger_s: time in seconds after which a received line is logged at the latest; default 0.2.
    """

    line_bytes: int = 1 << 20
    ahead_lines: int = 200_000
    segment_bytes: int = 1 << 20
    linger_s: float = 0.2


class SocketReceiver:
    """A background service that connects to a server of lines, and reconnects until it is stopped.

    Args:
        address: 'host:port'.
        limits: of memory and of the log; default: see `ReceiverLimits`.

    Raises:
        SettingsInvalid: the address is invalid.
    """

    def __init__(self, address: str, limits: ReceiverLimits | None = None) -> None:
        self._host, self._port = parse_address(address)
        self._limits = limits or ReceiverLimits()
        self._stopping = threading.Event()
        self._failure: SluicegateError | None = None
        self._thread: threading.Thread | None = None

    def start(self, checkpoint: ObjectStore) -> None:
        """Start to connect and receive; see `query.BackgroundService`."""
        peer = f"{self._host}:{self._port}"
        buffer = _LineBuffer(WriteAheadLog(checkpoint), peer, self._limits, self._stopping)
        self._thread = threading.Thread(
            target=self._run, args=(buffer,), name="sluicegate-receiver", daemon=True
        )
        self._thread.start()

    def failure(self) -> SluicegateError | None:
        """Return the error that ended it."""
        return self._failure

    def stop(self) -> None:
        """Log the received lines, close the connection and wait for the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, buffer: _LineBuffer) -> None:
        try:
            buffer.begin()
            self._serve(buffer)
        except SluicegateError as error:
            self._failure = error
        except Exception as error:  # the thread has no caller; the query reports the error
            log.exception("the receiver failed")
            self._failure = SluicegateError(
                f"the receiver of lines failed: {error!r}",
                data="logged lines are processed; lines in memory are lost",
                do="restart the driver; report a bug if it fails again",
            )

    def _serve(self, buffer: _LineBuffer) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                connection = socket.create_connection((self._host, self._port), _CONNECT_S)
            except OSError as error:
                pause_s = backoff_s(failures + 1, _FIRST_BACKOFF_S, _MAX_BACKOFF_S)
                log.warning("%s:%d: %s; retrying in %.1f s", self._host, self._port, error, pause_s)
            else:
                log.info("connected to %s:%d", self._host, self._port)
                with connection:
                    if self._receive(connection, buffer):
                        failures = 0
            failures += 1
            self._stopping.wait(backoff_s(failures, _FIRST_BACKOFF_S, _MAX_BACKOFF_S))

    def _receive(self, connection: socket.socket, buffer: _LineBuffer) -> bool:
        """Receive until the connection ends; return whether any data was received."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(_POLL_S)
        splitter, received = LineSplitter(self._limits.line_bytes), False
        torn: str | None = "the driver stopped within the line"
        while not self._stopping.is_set():
            if not buffer.room():
                continue
            try:
                data = connection.recv(_RECEIVE_BYTES)
            except TimeoutError:
                buffer.tick()
                continue
            except OSError as error:
                torn = f"the connection broke within the line ({error})"
                break
            if not data:
                torn = None
                break
            received = True
            buffer.add(splitter.feed(data, _now_us()))
        buffer.add(splitter.close(_now_us(), torn))
        buffer.flush()
        if not self._stopping.is_set():
            log.warning("%s:%d closed the connection: %s", self._host, self._port, torn or "closed")
        return received


class _LineBuffer:
    """Received lines before they are logged: at most one segment in memory."""

    def __init__(
        self, stored: WriteAheadLog, peer: str, limits: ReceiverLimits, stopping: threading.Event
    ) -> None:
        self._log, self._peer, self._limits, self._stopping = stored, peer, limits, stopping
        self._receiver = uuid.uuid4().hex
        self._number = 0
        self._lines: list[Line] = []
        self._bytes = 0
        self._oldest = 0.0
        self._ahead: dict[int, int] = {}
        self._checked = self._pruned = time.monotonic()

    def begin(self) -> None:
        """Find the end of the log."""
        self._number, self._ahead = _retry(self._log.end), _retry(self._log.unplanned)

    def add(self, lines: list[Line]) -> None:
        """Add lines; log them if there are enough."""
        if lines and not self._lines:
            self._oldest = time.monotonic()
        self._lines += lines
        self._bytes += sum(len(line.content) for line in lines)
        self.tick()

    def tick(self) -> None:
        """Log the lines if they have waited long enough."""
        waited = time.monotonic() - self._oldest
        if self._bytes >= self._limits.segment_bytes or waited >= self._limits.linger_s:
            self.flush()

    def flush(self) -> None:
        """Log all lines as one segment."""
        if not self._lines:
            return
        number, lines = self._number + 1, self._lines
        failpoints.reach("before-receipt", epoch=number)
        _retry(lambda: self._log.append(number, lines, self._receiver, self._peer))
        self._check_no_rival(number)
        failpoints.reach("after-receipt", epoch=number)
        self._number, self._lines, self._bytes = number, [], 0
        self._ahead[number] = len(lines)

    def room(self) -> bool:
        """Return whether more may be received; wait briefly if not."""
        full = sum(self._ahead.values()) >= self._limits.ahead_lines
        if full:
            self.flush()
        if full or time.monotonic() - self._pruned > _PRUNE_EVERY_S:
            _retry(self._update_ahead)
        if sum(self._ahead.values()) < self._limits.ahead_lines:
            return True
        self._stopping.wait(_POLL_S)
        return False

    def _update_ahead(self) -> None:
        """Find out which segments are part of an epoch; prune those that are not needed any more."""
        planned = self._log.planned()
        self._ahead = {number: n for number, n in self._ahead.items() if number > planned}
        if time.monotonic() - self._pruned > _PRUNE_EVERY_S:
            self._log.prune()
            self._pruned = time.monotonic()

    def _check_no_rival(self, number: int) -> None:
        """Check that no later segment exists, after a long time without a check (rule 2)."""
        unchecked_s, self._checked = time.monotonic() - self._checked, time.monotonic()
        if unchecked_s > _UNCHECKED_S and self._log.end() > number:
            what = f"another driver continued the log of received lines after segment {number}"
            raise fenced(what)


class LineSplitter:
    """Splits the bytes of one connection into lines; pure.

    A line ends at a line feed and consists of all bytes before it: nothing is decoded, and a carriage
    return is kept. Of a line of more than `limit_bytes` only the start is kept, with length and hash of
    the whole line, so that memory is bounded whatever the peer sends.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._start = bytearray()
        self._length = 0
        self._hash = hashlib.sha256()

    def feed(self, data: bytes, now_us: int) -> list[Line]:
        """Return the lines that these bytes complete."""
        *whole, rest = data.split(b"\n")
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

        `torn` says why the connection broke within it; None: the peer closed it and completed the line.
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


def _retry(work: Callable[[], T]) -> T:
    """Run work, and retry while the store does not reply; nothing is received meanwhile."""
    failures = 0
    while True:
        try:
            return work()
        except StoreUnavailable as error:
            failures += 1
            if failures == _LOG_TRIES:
                raise
            log.warning("the log of received lines waits for the store: %s", error.what)
        time.sleep(backoff_s(failures, 0.1, 2.0))


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of 'host:port'; an IPv6 address must be in brackets.

    Raises:
        SettingsInvalid: the address is invalid.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SettingsInvalid(
            f"{address!r} is not the address of a server of lines",
            data="nothing was started",
            do="use host:port, such as localhost:9999",
        )
    return host.strip("[]"), int(port)


def _now_us() -> int:
    return time.time_ns() // 1000
