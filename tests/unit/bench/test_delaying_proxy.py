"""Bytes arrive complete, in order, and later by the delay; those that follow do not wait for them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from queue import Queue
from threading import Thread

import pytest

from tests.bench import delaying_proxy

DELAY_S = 0.1


def echo(listener: socket.socket) -> None:
    """Send back what arrives on one connection, and close it when the client does."""
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Return the address of a proxy in front of a server that echoes one connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("127.0.0.1", 0)) as proxy,
    ):
        port = server.getsockname()[1]
        threads = [
            Thread(target=echo, args=(server,)),
            Thread(target=delaying_proxy.serve, args=(proxy, port, DELAY_S)),
        ]
        for thread in threads:
            thread.start()
        yield proxy.getsockname()
        proxy.shutdown(socket.SHUT_RDWR)  # ends `accept`, which a close does not
        for thread in threads:
            thread.join(60)


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Return a connection through the proxy."""
    with socket.create_connection(address, timeout=60) as connection:
        yield connection


def receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += connection.recv(1 << 16)
    return received


def round_trip_s(connection: socket.socket) -> float:
    start_s = time.monotonic()
    connection.sendall(b"x")
    receive(connection, 1)
    return time.monotonic() - start_s


def test_a_round_trip_takes_the_delay_twice(client: socket.socket) -> None:
    round_trip_s(client)
    assert round_trip_s(client) >= 2 * DELAY_S


def test_the_handshake_takes_a_round_trip_too(address: tuple[str, int]) -> None:
    start_s = time.monotonic()
    with socket.create_connection(address, timeout=60) as connection:
        round_trip_s(connection)
    assert time.monotonic() - start_s >= 4 * DELAY_S


def test_bytes_that_follow_do_not_wait_for_those_before() -> None:
    """Each chunk is due a delay after it was received, whatever is queued."""
    sender, receiver = socket.socketpair()
    chunks: delaying_proxy._Chunks = Queue()
    with sender, receiver:
        receiving = Thread(target=delaying_proxy._receive, args=(receiver, chunks, 1000.0))
        receiving.start()
        for _ in range(3):
            sender.sendall(b"x")
        sender.shutdown(socket.SHUT_WR)
        receiving.join(60)
    latest_s = time.monotonic() + 1000.0
    due_s = [chunks.get()[0] for _ in range(chunks.qsize())]
    assert due_s
    assert max(due_s) <= latest_s


def test_bytes_arrive_complete_and_in_order(client: socket.socket) -> None:
    sent = bytes(range(256)) * 20_000
    sending = Thread(target=client.sendall, args=(sent,))
    sending.start()
    assert receive(client, len(sent)) == sent
    sending.join()


def test_the_end_of_a_connection_is_forwarded(client: socket.socket) -> None:
    client.sendall(b"x")
    client.shutdown(socket.SHUT_WR)
    assert receive(client, 1) == b"x"
    assert client.recv(1) == b""


def test_a_server_that_is_down_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client, proxied = socket.socketpair()
    with client:
        delaying_proxy._forward(proxied, port, 0.0)
        assert client.recv(1) == b""
