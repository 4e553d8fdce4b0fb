"""Receives lines over TCP and logs them; a thread of the driver.

What is in the receipt log is processed exactly once. TCP has no acknowledgement by the reader: what
the kernel has taken from the peer and this thread has not logged is lost when the driver dies, and
the sender is not told. Not here: cutting lines (`socket_lines`), the log (`storage.receipts`),
Spark (`socket_source`). Made by jobs, run by `query` beside the epochs.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import SettingsInvalid, SluicegateError, StoreUnavailable
from sluicegate.spark.socket_lines import LineCutter
from sluicegate.storage.objects import Objects
from sluicegate.storage.receipts import Line, ReceiptLog, fenced

log = logging.getLogger("sluicegate.receiver")

_MOMENT_S = 0.1
_RECEIVE_BYTES = 1 << 16
_CONNECT_S = 10.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.1, 10.0
_LOG_TRIES = 30
_TIDY_S = 10.0
_BLIND_S = 5.0
"""After a pause this long another driver may have gone on, and pruned the number that is next here."""


@dataclass(frozen=True)
class ReceiverLimits:
    """What a receiver keeps to.

    Args:
        line_bytes: a longer line is a dead letter.
        ahead_lines: reading from the socket pauses while so many lines are in no epoch yet.
        segment_bytes: a segment of the log is closed at about this size.
        linger_s: a line is logged no later than this after it came.
    """

    line_bytes: int = 1 << 20
    ahead_lines: int = 200_000
    segment_bytes: int = 1 << 20
    linger_s: float = 0.2


class SocketReceiver:
    """Connects to a server of lines, and again when the connection ends, until it is stopped.

    Args:
        address: 'host:port'.
        limits: of memory and of the log.

    Raises:
        SettingsInvalid: the address is none.
    """

    def __init__(self, address: str, limits: ReceiverLimits | None = None) -> None:
        self._host, self._port = parse_address(address)
        self._limits = limits or ReceiverLimits()
        self._stopping = threading.Event()
        self._failure: SluicegateError | None = None
        self._thread: threading.Thread | None = None

    def start(self, checkpoint: Objects) -> None:
        """Begin to connect and receive; see `beside.Beside`."""
        receipts = _Receipts(ReceiptLog(checkpoint), self._limits, self._stopping)
        self._thread = threading.Thread(
            target=self._run, args=(receipts,), name="sluicegate-receiver", daemon=True
        )
        self._thread.start()

    def failure(self) -> SluicegateError | None:
        """Return what has ended it."""
        return self._failure

    def stop(self) -> None:
        """Log what was received, close the connection and wait for the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, receipts: _Receipts) -> None:
        try:
            receipts.begin()
            self._serve(receipts)
        except SluicegateError as error:
            self._failure = error
        except Exception as error:  # a thread has no caller; the query ends with it
            log.exception("the receiver failed")
            self._failure = SluicegateError(
                f"the receiver of lines failed: {error!r}",
                data="what is in the receipt log is processed; lines in memory are lost",
                do="restart the driver; report it if it fails again",
            )

    def _serve(self, receipts: _Receipts) -> None:
        backoff = _FIRST_BACKOFF_S
        while not self._stopping.is_set():
            try:
                connection = socket.create_connection((self._host, self._port), _CONNECT_S)
            except OSError as error:
                log.warning("%s:%d: %s; again in %.1f s", self._host, self._port, error, backoff)
            else:
                log.info("connected to %s:%d", self._host, self._port)
                with connection:
                    if self._receive(connection, receipts):
                        backoff = _FIRST_BACKOFF_S
            self._stopping.wait(backoff)
            backoff = min(_LONGEST_BACKOFF_S, 2 * backoff)

    def _receive(self, connection: socket.socket, receipts: _Receipts) -> bool:
        """Receive until the connection ends; return whether anything came."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(_MOMENT_S)
        cutter, came = LineCutter(self._limits.line_bytes), False
        torn: str | None = "the driver stopped within the line"
        while not self._stopping.is_set():
            if not receipts.room():
                continue
            try:
                data = connection.recv(_RECEIVE_BYTES)
            except TimeoutError:
                receipts.tick()
                continue
            except OSError as error:
                torn = f"the connection broke within the line ({error})"
                break
            if not data:
                torn = None
                break
            came = True
            receipts.take(cutter.feed(data, _now_us()))
        receipts.take(cutter.close(_now_us(), torn))
        receipts.flush()
        if not self._stopping.is_set():
            log.warning("%s:%d ended the connection: %s", self._host, self._port, torn or "closed")
        return came


class _Receipts:
    """Lines on their way into the log: at most a segment in memory."""

    def __init__(
        self, stored: ReceiptLog, limits: ReceiverLimits, stopping: threading.Event
    ) -> None:
        self._log, self._limits, self._stopping = stored, limits, stopping
        self._receiver = uuid.uuid4().hex
        self._number = 0
        self._lines: list[Line] = []
        self._bytes = 0
        self._oldest = 0.0
        self._ahead: dict[int, int] = {}
        self._seen = self._tidied = time.monotonic()

    def begin(self) -> None:
        """Find the end of the log."""
        self._repeated(self._look)

    def _look(self) -> None:
        self._number = self._log.end()
        self._ahead = self._log.unplanned()

    def take(self, lines: list[Line]) -> None:
        """Accept lines; log them if they are enough."""
        if lines and not self._lines:
            self._oldest = time.monotonic()
        self._lines += lines
        self._bytes += sum(len(line.content) for line in lines)
        self.tick()

    def tick(self) -> None:
        """Log what has waited long enough."""
        waited = time.monotonic() - self._oldest
        if self._bytes >= self._limits.segment_bytes or waited >= self._limits.linger_s:
            self.flush()

    def flush(self) -> None:
        """Log all lines as one segment."""
        if not self._lines:
            return
        number, lines = self._number + 1, self._lines
        failpoints.reach("before-receipt", epoch=number)
        self._repeated(lambda: self._log.append(number, lines, self._receiver))
        self._check_alone(number)
        failpoints.reach("after-receipt", epoch=number)
        self._number, self._lines, self._bytes = number, [], 0
        self._ahead[number] = len(lines)

    def room(self) -> bool:
        """Return whether more may be received; waits for a moment if not."""
        full = sum(self._ahead.values()) >= self._limits.ahead_lines
        if full:
            self.flush()
        if full or time.monotonic() - self._tidied > _TIDY_S:
            self._repeated(self._tidy)
        if sum(self._ahead.values()) < self._limits.ahead_lines:
            return True
        self._stopping.wait(_MOMENT_S)
        return False

    def _tidy(self) -> None:
        """Learn how far Spark has come; remove what is not needed any more."""
        planned = self._log.planned()
        self._ahead = {number: n for number, n in self._ahead.items() if number > planned}
        if time.monotonic() - self._tidied > _TIDY_S:
            self._log.prune()
            self._tidied = time.monotonic()

    def _check_alone(self, number: int) -> None:
        """See that no later segment exists, if this thread has not looked for long (rule 2).

        Of a driver that slept meanwhile the number may be new only because it was pruned.
        """
        blind, self._seen = time.monotonic() - self._seen, time.monotonic()
        if blind > _BLIND_S and self._log.end() > number:
            raise fenced(f"the receipt log went on after segment {number} without this driver")

    def _repeated(self, work: Callable[[], None]) -> None:
        """Do something again while the store gives no answer; nothing is received meanwhile."""
        for tried in range(_LOG_TRIES):
            try:
                work()
            except StoreUnavailable as error:
                if tried == _LOG_TRIES - 1:
                    raise
                log.warning("the receipt log waits for the store: %s", error.what)
            else:
                return
            time.sleep(min(2.0, 0.1 * 2**tried))


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of 'host:port'; an IPv6 address stands in brackets.

    Raises:
        SettingsInvalid: it is none.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SettingsInvalid(
            f"{address!r} is no address of a server of lines",
            data="nothing was started",
            do="give host:port, such as localhost:9999",
        )
    return host.strip("[]"), int(port)


def _now_us() -> int:
    return time.time_ns() // 1000
