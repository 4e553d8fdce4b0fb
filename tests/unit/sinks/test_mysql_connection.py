"""The socket of a session with MySQL."""

from __future__ import annotations

import socket

import pytest

from sluicegate.sinks.mysql import connection
from sluicegate.sinks.mysql.connection import Address


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="not Linux")
def test_a_server_that_is_out_of_reach_is_noticed_within_20_s() -> None:
    """Whether the session waits for an answer (keep-alive) or for an acknowledgment (user timeout)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        address = Address("127.0.0.1", port, user="u", password="p")
        with connection._open_socket(address, 5) as opened:
            idle, interval, count, unacknowledged_ms = (
                opened.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                    socket.TCP_USER_TIMEOUT,
                )
            )
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert idle + interval * count <= 20
    assert unacknowledged_ms == 20_000
