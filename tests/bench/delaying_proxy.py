"""A TCP proxy that delays: `python -m tests.bench.delaying_proxy PORT TARGET_PORT DELAY_MS`.

It is what `tc qdisc add ... netem delay` is where the kernel has it. Bytes reach the other side DELAY_MS
after the proxy has received them, in both directions, however many follow meanwhile: the bandwidth is not
limited. Threads, because the timers of an event loop are rounded up to whole milliseconds.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Final

from infra.local_services.process import ServiceError, accepts
from tests.bench.child import running_command

_CHUNK_BYTES: Final = 1 << 16
_CHUNKS: Final = 1024
"""On their way in one direction of a connection; the sender waits while there are more."""

_START_TIMEOUT_S: Final = 30.0

_Chunks = Queue[tuple[float, bytes]]


@contextmanager
def running(port: int, target_port: int, round_trip_ms: float, log: Path) -> Iterator[None]:
    """Run a proxy while the block runs, which starts when the proxy accepts connections.

    Args:
        port: of the proxy, on the loopback address.
        target_port: of the server.
        round_trip_ms: how long a request and its response are on their way, in milliseconds.
        log: file for its output.

    Raises:
        ServiceError: it did not start.
    """
    arguments = map(str, (port, target_port, round_trip_ms / 2))
    with running_command([sys.executable, "-m", "tests.bench.delaying_proxy", *arguments], log):
        end = time.monotonic() + _START_TIMEOUT_S
        while not accepts(port):
            if time.monotonic() > end:
                raise ServiceError(
                    f"The proxy of a distant server was not ready after {_START_TIMEOUT_S:.0f} s, so "
                    f"nothing was measured. Read {log}."
                )
            time.sleep(0.05)
        yield


def serve(listener: socket.socket, target_port: int, delay_s: float) -> None:
    """Forward every connection until the listener is shut down and both sides have closed them.

    Args:
        listener: accepts the connections.
        target_port: on the loopback address.
        delay_s: of each direction, in seconds.
    """
    connections: list[Thread] = []
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            connection = Thread(target=_forward, args=(client, target_port, delay_s), daemon=True)
            connection.start()
            connections.append(connection)
    for connection in connections:
        connection.join()


def _forward(client: socket.socket, target_port: int, delay_s: float) -> None:
    """Forward a connection. Its handshake is delayed too, by a round trip."""
    with client:
        time.sleep(2 * delay_s)
        try:
            server = socket.create_connection(("127.0.0.1", target_port))
        except OSError:
            return
        with server:
            threads = [*_started(client, server, delay_s), *_started(server, client, delay_s)]
            for thread in threads:
                thread.join()


def _started(source: socket.socket, target: socket.socket, delay_s: float) -> tuple[Thread, Thread]:
    """Return the threads that forward one direction."""
    target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    chunks: _Chunks = Queue(_CHUNKS)
    receiving = Thread(target=_receive, args=(source, chunks, delay_s), daemon=True)
    sending = Thread(target=_send, args=(chunks, target), daemon=True)
    receiving.start()
    sending.start()
    return receiving, sending


def _receive(source: socket.socket, chunks: _Chunks, delay_s: float) -> None:
    """Queue what a side sends, with the time at which the other side receives it; empty at its end."""
    data = b"any"
    while data:
        try:
            data = source.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        chunks.put((time.monotonic() + delay_s, data))


def _send(chunks: _Chunks, target: socket.socket) -> None:
    """Send what is queued when it is due; after an error only drop it, so that the queue never fills."""
    data = b"any"
    while data:
        due_s, data = chunks.get()
        time.sleep(max(0.0, due_s - time.monotonic()))
        with suppress(OSError):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main() -> int:
    """Serve until this process is killed."""
    port, target_port, delay_ms = sys.argv[1:]
    with socket.create_server(("127.0.0.1", int(port)), backlog=128) as listener:
        serve(listener, int(target_port), float(delay_ms) / 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
