"""Sends records to the source of a long run at a steady rate, while Kafka is killed and paused."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaError, Message, Producer

from sluicegate_jobs import generators

_TICK_S = 0.1
_FLUSH_S = 120.0
_METADATA_S = 30.0
_BEGIN = datetime(2026, 1, 7, 12, 0, 0, tzinfo=UTC)
_ENDLESS = 1 << 40


def indicators(seed: int) -> Iterator[bytes]:
    """Yield the input of two_sinks without end; one record in 50 becomes a dead letter."""
    return (record.value or b"" for record in generators.indicators(_ENDLESS, seed))


def access_lines(seed: int) -> Iterator[bytes]:
    """Yield access-log lines without end, in the order of their times; one in 50 is invalid.

    None is late, so that a row may be a dead letter for no other reason than that it is invalid.
    """
    rng = random.Random(seed)
    i = 0
    while True:
        stamp = (_BEGIN + timedelta(seconds=i / 10)).strftime("%d/%b/%Y:%H:%M:%S +0000")
        address = f"10.0.0.{min(int(rng.expovariate(0.15)), 250)}"
        line = f'{address} - - [{stamp}] "GET /{i} HTTP/1.1" 200 {i} "-" "curl/8"'
        yield (line.replace("[", "(") if i % 50 == 49 else line).encode()
        i += 1


def due(rate: float, ended: threading.Event) -> Iterator[range]:
    """Yield the numbers of the records to send now, ten times a second until the event is set.

    Args:
        rate: records per second. What could not be sent in time is due as soon as it can.
        ended: ends it.
    """
    began, sent = time.monotonic(), 0
    while not ended.wait(_TICK_S):
        until = max(sent, int((time.monotonic() - began) * rate))
        yield range(sent, until)
        sent = until


class SteadyTraffic:
    """A thread that sends records to a topic.

    Args:
        bootstrap: brokers.
        topic: the source.
        records: what to send; in turn to the partitions that the topic has now.
        rate: records per second. What could not be sent while Kafka was down is sent afterwards.
    """

    def __init__(self, bootstrap: str, topic: str, records: Iterator[bytes], rate: float) -> None:
        self._topic, self._records, self._rate = topic, records, rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "linger.ms": 20,
                "log_level": 0,  # refused connections are part of the run
            }
        )
        self.partitions = self._known_partitions()
        """Partitions to send to."""
        self.confirmed = 0
        """Records that Kafka has confirmed."""
        self._errors: list[KafkaError] = []
        self._failure: Exception | None = None
        self._ended, self._flows = threading.Event(), threading.Event()
        self._flows.set()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def check(self) -> None:
        """Check that records are still being sent.

        Raises:
            RuntimeError: the thread has ended, so that a job without new rows proves nothing.
        """
        if self._failure is not None:
            reason = f"{type(self._failure).__name__}: {self._failure}"
            raise RuntimeError(f"the traffic ended early: {reason}") from self._failure

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Send nothing while the block runs; what is due then is sent after it."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    def grow(self, partitions: int) -> None:
        """Send to partitions that were added too, as soon as the producer knows them.

        Raises:
            TimeoutError: Kafka does not name them.
        """
        deadline = time.monotonic() + _METADATA_S
        while self._known_partitions() < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {self._topic} has no {partitions} partitions yet")
            time.sleep(_TICK_S)
        self.partitions = partitions

    def stop(self) -> int:
        """Stop, wait until Kafka has confirmed everything, and return how many records that are."""
        self._ended.set()
        self._thread.join()
        self.check()
        deadline = time.monotonic() + _FLUSH_S
        # by the second: no signal is handled while the client waits
        while (unsent := self._producer.flush(1.0)) and time.monotonic() < deadline:
            self.check()
        if unsent or self._errors:
            raise TimeoutError(
                f"topic {self._topic} did not accept all records: {self._errors[:1]}"
            )
        return self.confirmed

    def _known_partitions(self) -> int:
        """Ask Kafka for the partitions of the topic, which the producer can send to from then on."""
        metadata = self._producer.list_topics(self._topic, timeout=_METADATA_S)
        return len(metadata.topics[self._topic].partitions)

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 - `check` raises it in the thread of the run
            self._failure = error

    def _send(self) -> None:
        for numbers in due(self._rate, self._ended):
            while not self._flows.wait(_TICK_S):
                self._producer.poll(0)
            for number in numbers:
                self._producer.produce(
                    self._topic,
                    next(self._records),
                    partition=number % self.partitions,
                    on_delivery=self._delivered,
                )
                self._producer.poll(0)
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.confirmed += 1
        else:
            self._errors.append(error)
