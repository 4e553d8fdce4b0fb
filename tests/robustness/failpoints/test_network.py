"""A driver is cut off from a server, or slow on the way to it, and nobody else is."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra.workspace import CHECKOUT
from tests.robustness.failpoints.network import Network, as_driver, in_own_namespace, missing
from tests.robustness.traffic.ip_count_harness import RunningDriver
from tests.robustness.traffic.long_lived_job import Driver

_QUESTIONS = 50
_RESENT_S = 0.18
"""TCP sends a packet again after 0.2 s at the earliest."""

_asked: list[bytes] = []
"""What the server has got."""

_ASKS = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.settimeout(0.5)
for question in sys.stdin:
    connection.sendall(question.encode())
    try:
        print(connection.recv(1 << 10).decode().split()[-1], flush=True)
    except TimeoutError:
        print("no answer", flush=True)
"""


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_network_of_one_driver_alone_is_cut_or_slow() -> None:
    """Cut off it gets no answer and no error, and afterwards the packets that were dropped.

    On a slow network each question is answered, some of them late. If the replies are lost, the server
    has the question nevertheless.
    """
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "before": ["1", "1"],
        "cut": ["no answer", "2"],
        "arrived from both": False,
        "after": ["3", "3"],
        "replies lost": ["no answer", "6"],
        "arrived": [True, True],
        "late when slow": [True, False],
    }


def _main() -> None:
    in_own_namespace()
    network = Network()
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        port = server.getsockname()[1]
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        clients = [stack.enter_context(_client(port, within)) for within in (as_driver(1), ())]
        found: dict[str, object] = {"before": [_ask(client, 1) for client in clients]}
        with network.cut(Driver(RunningDriver(clients[0], Path())), [port]):
            found["cut"] = [_ask(client, 2) for client in clients]
            found["arrived from both"] = _asked.count(b"2") == 2
        found["after"] = [_ask(client, 3, until_answered=True) for client in clients]
        unanswered = stack.enter_context(_client(port, as_driver(2)))
        _ask(unanswered, 4)
        with network.lose_replies(Driver(RunningDriver(unanswered, Path())), [port]):
            found["replies lost"] = [_ask(unanswered, 5), _ask(clients[1], 6)]
            found["arrived"] = [number in _asked for number in (b"5", b"6")]
        with network.slow(Driver(RunningDriver(clients[0], Path())), [port]):
            found["late when slow"] = [_is_ever_late(client) for client in clients]
        for client in (*clients, unanswered):
            client.kill()
    print(json.dumps(found))  # noqa: T201 - the test reads it


def _is_ever_late(client: subprocess.Popen[bytes]) -> bool:
    """Ask until an answer is late: of 64 in 100 questions no packet is lost."""
    for number in range(_QUESTIONS):
        began = time.monotonic()
        _ask(client, number, until_answered=True)
        if time.monotonic() - began > _RESENT_S:
            return True
    return False


def _serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    while content := connection.recv(1 << 10):
        _asked.extend(content.split())
        connection.sendall(content)


def _client(port: int, within: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = [*within, sys.executable, "-c", _ASKS, str(port)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask(client: subprocess.Popen[bytes], number: int, *, until_answered: bool = False) -> str:
    assert client.stdin is not None
    assert client.stdout is not None
    while True:
        client.stdin.write(f"{number}\n".encode())
        client.stdin.flush()
        answer = client.stdout.readline().decode().strip()
        if answer == str(number) or not until_answered:
            return answer


if __name__ == "__main__":
    _main()
