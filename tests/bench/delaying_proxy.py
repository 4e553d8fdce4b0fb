"""A TCP proxy that delays: `python -m tests.bench.delaying_proxy PORT TARGET_PORT DELAY_MS`.

It is what `tc qdisc add ... netem delay` is where the kernel has it. Bytes reach the other side DELAY_MS
after the proxy has received them, in both directions, however many follow meanwhile: the bandwidth is not
limited. Threads, because the timers of an event loop are rounded up to whole milliseconds.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from queue import Queue
from threading import Thread
from typing import Final

_CHUNK_BYTES: Final = 1 << 16
_CHUNKS: Final = 1024
"""On their way in one direction of a connection; the sender waits while there are more."""

_Chunks = Queue[tuple[float, bytes]]


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
