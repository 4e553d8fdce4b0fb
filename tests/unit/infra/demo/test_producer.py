"""The replay keeps its pace, counts exactly, and says when lines are missing."""

import gzip
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.demo import producer as module
from infra.demo.producer import (
    Pace,
    Replay,
    ReplayError,
    count_lines,
    partition_of,
    read_lines,
    replay,
)


def test_lines_are_due_evenly() -> None:
    pace = Pace(lines=900, seconds=90)
    assert [pace.due(at) for at in (-1, 0, 0.05, 0.1, 45, 89.99, 90, 1000)] == [
        0, 0, 0, 1, 450, 899, 900, 900,
    ]  # fmt: skip


def test_without_a_duration_all_is_due_at_once() -> None:
    assert Pace(lines=900, seconds=0).due(0) == 900
    assert Pace(lines=900, seconds=0).wait_s(0, 0) == 0


def test_the_wait_ends_when_the_next_line_is_due() -> None:
    slow = Pace(lines=10, seconds=100)
    assert slow.wait_s(sent=1, elapsed_s=12.5) == pytest.approx(7.5)


def test_a_fast_pace_sends_in_batches_of_a_tick() -> None:
    assert Pace(lines=1_000_000, seconds=10).wait_s(sent=5, elapsed_s=0) == pytest.approx(0.02)


def test_nothing_is_waited_for_behind_the_last_line() -> None:
    assert Pace(lines=10, seconds=100).wait_s(sent=10, elapsed_s=1) == 0


def test_round_robin_takes_partitions_in_turn() -> None:
    taken = [partition_of(b"-", number, 3, "round-robin") for number in range(5)]
    assert taken == [0, 1, 2, 0, 1]


def test_an_address_stays_in_its_partition() -> None:
    lines = [b"10.0.0.%d - %d" % (n % 50, n) for n in range(500)]
    homes: dict[bytes, set[int]] = {}
    for number, line in enumerate(lines):
        homes.setdefault(line.split()[0], set()).add(partition_of(line, number, 4, "address"))
    assert all(len(home) == 1 for home in homes.values())
    assert len(set.union(*homes.values())) == 4


def test_a_broken_line_has_a_partition_too() -> None:
    assert partition_of(b"", 7, 4, "address") in range(4)


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_a_log_is_read_as_bytes_and_lines_end_at_newlines_alone(tmp_path: Path, name: str) -> None:
    content = b"one\r\n\n\xff\xfe\x85\x0c\nlast"
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert list(read_lines(path)) == [b"one\r", b"", b"\xff\xfe\x85\x0c", b"last"]
    assert count_lines(path) == 4


class FakeProducer:
    """Confirms at poll and flush, as librdkafka does; `refuse` makes it say no from then on."""

    sent: list[tuple[int, bytes]]
    refuse_from: int = 1 << 30
    full_at: int = -1

    def __init__(self, _settings: dict[str, Any]) -> None:
        type(self).sent = []
        self._waiting: list[Callable[[], None]] = []

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:  # noqa: ARG002 - the client's
        return SimpleNamespace(
            topics={topic: SimpleNamespace(error=None, partitions=dict.fromkeys(range(3)))}
        )

    def produce(
        self, _topic: str, *, value: bytes, partition: int, on_delivery: Callable[..., None]
    ) -> None:
        if len(self.sent) == self.full_at and self._waiting:
            raise BufferError
        error = "no" if len(self.sent) >= self.refuse_from else None
        self.sent.append((partition, value))
        self._waiting.append(lambda: on_delivery(error, None))

    def poll(self, _timeout: float) -> None:
        while self._waiting:
            self._waiting.pop()()

    flush = poll


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> type[FakeProducer]:
    class Fresh(FakeProducer):
        pass

    monkeypatch.setattr(module, "Producer", Fresh)
    return Fresh


def sending(lines: Iterator[bytes], count: int, seconds: float = 0.0) -> Replay:
    return Replay(lines, count=count, bootstrap="-", topic="t", seconds=seconds)


def test_every_line_is_sent_once_in_order_and_counted(
    tmp_path: Path, producer: type[FakeProducer]
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(100)))
    producer.full_at = 40
    assert replay(path, "-", "t", 0.05) == 100
    assert producer.sent == [(n % 3, b"%d" % n) for n in range(100)]


def test_a_stopped_replay_counts_what_is_in(producer: type[FakeProducer]) -> None:
    reached = threading.Event()

    def lines() -> Iterator[bytes]:
        for _ in range(10_000):
            reached.set()
            yield b"line"

    going = sending(lines(), 10_000, seconds=3600).start()
    going.stop()
    going.stop()
    count = going.join()
    assert count == len(producer.sent) < 10_000


@pytest.mark.usefixtures("producer")
def test_a_log_that_is_shorter_than_said_ends_the_replay() -> None:
    assert sending(iter([b"only"]), 5).start().join() == 1


def test_a_refused_line_is_an_error_that_says_how_many_are_in(
    producer: type[FakeProducer],
) -> None:
    producer.refuse_from = 3
    with pytest.raises(ReplayError, match=r"did not get into topic t: no\. 3 are confirmed"):
        sending(iter([b"-"] * 9), 9).start().join()


@pytest.mark.usefixtures("producer")
def test_a_log_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"line\n" * 10_000)[:-9])
    with pytest.raises(ReplayError, match="did not get into"):
        sending(read_lines(path), 10_000).start().join()
