"""SocketReceiver on a real socket and a real disk, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.errors import Fenced, SettingsInvalid
from sluicegate.spark.socket.receiver import ReceiverLimits, SocketReceiver, parse_address
from sluicegate.spark.socket.write_ahead_log import Line, WriteAheadLog
from sluicegate.storage.object_store import LocalObjectStore
from tests.robustness.traffic.line_server import LineServer

_TIMEOUT_S = 20.0


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def numbered(number: int) -> bytes:
    return b"%d\n" % number


def logged(tmp_path: Path) -> list[bytes]:
    """Return all logged lines."""
    log = WriteAheadLog(LocalObjectStore(tmp_path))
    numbers = range(1, log.newest() + 1)
    return [line for number in numbers for line in log.read(number).column("line").to_pylist()]


def test_every_line_is_logged_once_and_in_order(tmp_path: Path) -> None:
    with LineServer(numbered, 500, pause_s=0) as server:
        receiver = SocketReceiver(server.address)
        receiver.start(LocalObjectStore(tmp_path))
        until(lambda: len(logged(tmp_path)) == 500)
        receiver.stop()
    assert logged(tmp_path) == [b"%d" % n for n in range(500)]


def test_it_reconnects_when_the_peer_closes(tmp_path: Path) -> None:
    with LineServer(numbered, 3, linger=False) as server:
        receiver = SocketReceiver(server.address)
        receiver.start(LocalObjectStore(tmp_path))
        until(lambda: server.connections > 2)
        receiver.stop()
    assert logged(tmp_path) == [b"0", b"1", b"2"]


def test_it_waits_for_a_server_that_is_down(tmp_path: Path) -> None:
    receiver = SocketReceiver("127.0.0.1:1")
    receiver.start(LocalObjectStore(tmp_path))
    receiver.stop()
    assert receiver.failure() is None


def test_it_pauses_while_the_log_is_too_far_ahead_of_the_epochs(
    tmp_path: Path,
) -> None:
    objects = LocalObjectStore(tmp_path)
    limits = ReceiverLimits(ahead_lines=10, linger_s=0)
    with LineServer(lambda n: b"%060000d\n" % n, 200, pause_s=0) as server:
        receiver = SocketReceiver(server.address, limits)
        receiver.start(objects)
        until(lambda: len(logged(tmp_path)) >= 10)
        time.sleep(0.5)  # it must do nothing, so there is no condition to wait for
        ahead = len(logged(tmp_path))
        assert ahead < 20
        planned = WriteAheadLog(objects).newest()
        objects.create("offsets/0", b'v1\n{}\n{"received":%d}' % planned)
        until(lambda: len(logged(tmp_path)) > ahead)
        receiver.stop()


def test_of_two_receivers_one_is_fenced(tmp_path: Path) -> None:
    with LineServer(numbered, 10_000, pause_s=0.001) as server:
        both = [SocketReceiver(server.address) for _ in range(2)]
        for receiver in both:
            receiver.start(LocalObjectStore(tmp_path))
        until(lambda: any(receiver.failure() for receiver in both))
        for receiver in both:
            receiver.stop()
    assert isinstance(both[0].failure() or both[1].failure(), Fenced)
    assert len(set(logged(tmp_path))) == len(logged(tmp_path))


def test_a_paused_receiver_is_fenced_even_if_its_number_was_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.spark.socket.receiver._UNCHECKED_S", 0.0)
    with LineServer(numbered, 10_000, pause_s=0.05) as server:
        receiver = SocketReceiver(server.address)
        receiver.start(LocalObjectStore(tmp_path))
        until(lambda: bool(logged(tmp_path)))
        # far ahead of the next number, which is free as after pruning
        WriteAheadLog(LocalObjectStore(tmp_path)).append(1000, [Line(b"other", 1)], "other")
        until(lambda: receiver.failure() is not None)
        receiver.stop()
    assert isinstance(receiver.failure(), Fenced)


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":9", "host:0", "host:70000"])
def test_an_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(SettingsInvalid, match="is not the address"):
        parse_address(address)


def test_an_ipv6_address_is_in_brackets() -> None:
    assert parse_address("[::1]:9999") == ("::1", 9999)
