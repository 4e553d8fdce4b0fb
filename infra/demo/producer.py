"""Replays an access log into a Kafka topic: every line once, evenly over a given time.

A line is sent byte by byte as it is, with its own event time; only the rate is set here.
"""

import argparse
import gzip
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from confluent_kafka import KafkaError, Message, Producer

from infra.demo.access_log import LogShape, access_log

Partitioning = Literal["round-robin", "address"]

_TICK_S: Final = 0.02
_ANSWER_S: Final = 30.0


class ReplayError(RuntimeError):
    """Lines did not get through; says how many did."""


@dataclass(frozen=True)
class Pace:
    """Evenly spread lines."""

    lines: int  # how many there are
    seconds: float  # from the first to the last; 0 sends as fast as it goes

    def due(self, elapsed_s: float) -> int:
        """Return how many lines should have been sent at this time."""
        if elapsed_s >= self.seconds:
            return self.lines
        return max(0, min(self.lines, int(self.lines * elapsed_s / self.seconds)))

    def wait_s(self, sent: int, elapsed_s: float) -> float:
        """Return how long to wait until the next line is due; at least a tick, so sends are batches."""
        if sent >= self.lines or self.seconds <= 0:
            return 0.0
        return max(0.0, (sent + 1) * self.seconds / self.lines - elapsed_s, _TICK_S)


class Replay:
    """Sends lines to an existing topic in a thread; `join` returns the count that Kafka has confirmed.

    Args:
        lines: in their order.
        count: how many these are, for the pace.
        bootstrap: brokers.
        topic: must exist.
        seconds: how long the whole takes.
        partitioning: 'address' keeps the lines of an address in their order.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        *,
        count: int,
        bootstrap: str,
        topic: str,
        seconds: float,
        partitioning: Partitioning = "round-robin",
    ) -> None:
        self._lines, self._partitioning = iter(lines), partitioning
        self._bootstrap, self._topic = bootstrap, topic
        self._pace = Pace(count, seconds)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)
        self._error: ReplayError | None = None
        self._failure: KafkaError | None = None
        self.confirmed = 0
        """Lines that Kafka has confirmed so far."""

    def start(self) -> "Replay":
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more; what was sent is still confirmed. Safe to repeat."""
        self._stop.set()

    def join(self) -> int:
        """Wait until all is sent, or it was stopped; return how many lines are in the topic."""
        while self._thread.is_alive():
            self._thread.join(0.2)  # in pieces, so that Ctrl-C gets through
        if self._error is not None:
            raise self._error
        return self.confirmed

    def _run(self) -> None:
        try:
            self._send()
        except ReplayError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - of the log too; `join` raises it
            self._error = _missing(self.confirmed, self._topic, error)

    def _send(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 10,
                "compression.type": "lz4",
                "log_level": 0,  # errors come back as values; the rest is noise on a terminal
            }
        )
        partitions = _partitions(producer, self._topic)
        began, sent = time.monotonic(), 0
        while sent < self._pace.lines and not self._stop.is_set() and self._failure is None:
            due = self._pace.due(time.monotonic() - began)
            while sent < due and not self._stop.is_set():
                line = next(self._lines, None)
                if line is None:
                    break
                number = partition_of(line, sent, partitions, self._partitioning)
                self._produce(producer, line, number)
                sent += 1
            if sent < due and not self._stop.is_set():
                break  # the log has fewer lines than announced
            producer.poll(0)
            self._stop.wait(self._pace.wait_s(sent, time.monotonic() - began))
        producer.flush(_ANSWER_S)
        if self._failure is not None or self.confirmed != sent:
            raise _missing(self.confirmed, self._topic, self._failure or f"{sent} were sent")

    def _produce(self, producer: Producer, line: bytes, partition: int) -> None:
        while True:
            try:
                producer.produce(
                    self._topic, value=line, partition=partition, on_delivery=self._delivered
                )
            except BufferError:  # the queue is full: let some be confirmed
                producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.confirmed += 1
        else:
            self._failure = error


def replay(log: Path, bootstrap: str, topic: str, seconds: float) -> int:
    """Send a log, plain or .gz, and return how many lines are in the topic; ReplayError if some are missing."""
    count = count_lines(log)
    sending = Replay(
        read_lines(log), count=count, bootstrap=bootstrap, topic=topic, seconds=seconds
    ).start()
    try:
        return sending.join()
    except BaseException:
        sending.stop()
        raise


def read_lines(log: Path) -> Iterator[bytes]:
    """Yield the lines of a log as bytes, without their newlines and never decoded."""
    with _opened(log) as file:
        for line in file:
            yield line.removesuffix(b"\n")


def count_lines(log: Path) -> int:
    """Return how many lines `read_lines` yields."""
    with _opened(log) as file:
        return sum(1 for _ in file)


def _opened(log: Path) -> gzip.GzipFile | BinaryIO:
    return gzip.open(log, "rb") if log.suffix == ".gz" else log.open("rb")


def partition_of(line: bytes, number: int, partitions: int, how: Partitioning) -> int:
    """Return the partition of a line: in turn, or by its address, which ends at the first space."""
    if how == "round-robin":
        return number % partitions
    return zlib.crc32(line.split(b" ", 1)[0]) % partitions


def _partitions(producer: Producer, topic: str) -> int:
    found = producer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if found.error is not None:
        raise _missing(0, topic, found.error)
    return len(found.partitions)


def _missing(confirmed: int, topic: str, why: object) -> ReplayError:
    return ReplayError(
        f"Lines did not get into topic {topic}: {why}. {confirmed} are confirmed; others may be in"
        " too. Look at the broker and the log, then start with a fresh topic."
    )


def main() -> int:
    """Replay a file, or a generated log."""
    parser = argparse.ArgumentParser(prog="python -m infra.demo.producer", description=__doc__)
    parser.add_argument(
        "--log", type=Path, help="an access log, plain or .gz; default: a generated one"
    )
    parser.add_argument("--lines", type=int, default=100_000, help="of the generated log")
    parser.add_argument("--seed", type=int, default=1, help="of the generated log")
    parser.add_argument("--bootstrap", required=True, help="Kafka, host:port")
    parser.add_argument("--topic", default="ip_count_source")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long the whole takes")
    parser.add_argument("--by", choices=("round-robin", "address"), default="round-robin")
    given = parser.parse_args()
    try:
        generated = access_log(LogShape(given.lines, given.seed))
        sending = Replay(
            read_lines(given.log) if given.log else generated,
            count=count_lines(given.log) if given.log else given.lines,
            bootstrap=given.bootstrap,
            topic=given.topic,
            seconds=given.seconds,
            partitioning=given.by,
        ).start()
        try:
            count = sending.join()
        except KeyboardInterrupt:
            sending.stop()
            count = sending.join()
    except (ReplayError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count:,} lines are in topic {given.topic}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
