"""A server of numbered lines for the socket job; it counts the lines that it sent. Tests only.

It gets no acknowledgment: each line is sent once, to the connected client.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_MOMENT_S = 0.1


class LineServer:
    """Sends each line once, to the connected client.

    Args:
        line: number -> bytes of the line with its line feed.
        last: number of lines; None: unlimited until `end_after`.
        pause_s: seconds between two lines.
        linger: keep the connection open after the last line.
    """

    def __init__(
        self,
        line: Callable[[int], bytes],
        last: int | None = None,
        *,
        pause_s: float = 0.002,
        linger: bool = True,
    ) -> None:
        self._line, self._last, self._pause_s, self._linger = line, last, pause_s, linger
        self.sent = 0
        self.connections = 0
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_MOMENT_S)
        self._thread = threading.Thread(target=self._serve)

    @property
    def address(self) -> str:
        """The address on which it listens."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def end_after(self, count: int) -> int:
        """Stop after a number of further lines; return the total."""
        with self._lock:
            self._last = self.sent + count
            return self._last

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        clients: list[threading.Thread] = []
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            clients.append(threading.Thread(target=self._send_to, args=(client,)))
            clients[-1].start()
        for thread in clients:
            thread.join()

    def _send_to(self, client: socket.socket) -> None:
        try:
            with client:
                while self._send_next(client):
                    self._ended.wait(self._pause_s)
                client.settimeout(_MOMENT_S)
                while self._linger and not self._ended.is_set():
                    try:
                        if not client.recv(1):
                            return
                    except TimeoutError:
                        continue
        except OSError:
            return  # the test has killed the driver

    def _send_next(self, client: socket.socket) -> bool:
        with self._lock:
            if self.sent == self._last or self._ended.is_set():
                return False
            client.sendall(self._line(self.sent))
            self.sent += 1
            return True
