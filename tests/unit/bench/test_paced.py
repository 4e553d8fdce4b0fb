"""A paced record is due at its time, whenever it is sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench import paced
from tests.bench.paced import MEASURED, WARM_UP, arrived, value
from tests.bench.plan import LATENCY_PARTITIONS, LATENCY_VALUE_BYTES, Pace
from tests.bench.produce import Sender

TOPIC = "topic"
PACE = Pace("1 second", records_s=2000, seconds=0.2)
DUE_NS = 1_795_000_000_123_456_789


@pytest.fixture
def kafka() -> Iterator[str]:
    """Return the address of a broker that librdkafka simulates in this process."""
    servers = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = servers.list_topics(timeout=60).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del servers


def read(kafka: str, records: int) -> list[bytes]:
    """Return the values of a topic."""
    settings = {"bootstrap.servers": kafka, "group.id": "any", "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(LATENCY_PARTITIONS)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < records and time.monotonic() < deadline:
        values += [message.value() or b"" for message in consumer.consume(records, 0.1)]
    consumer.close()
    return values


def test_a_value_contains_kind_number_and_due_time() -> None:
    assert value(MEASURED, 7, DUE_NS).startswith(b"m 000000007 01795000000123456789 ")
    assert len(value(MEASURED, 123_456_789, DUE_NS)) == LATENCY_VALUE_BYTES


def test_a_value_is_parsed_again() -> None:
    found = arrived([value(MEASURED, number, DUE_NS + number) for number in (0, 7_799_999)], 5)
    assert found.numbers.tolist() == [0, 7_799_999]
    assert found.due_ns.tolist() == [DUE_NS, DUE_NS + 7_799_999]
    assert found.seen_ns == 5


@pytest.mark.parametrize("values", [[], [value(WARM_UP, 1, DUE_NS)]])
def test_records_that_are_not_measured_do_not_arrive(values: list[bytes]) -> None:
    assert not arrived(values, 5).numbers.size


def test_each_record_is_sent_once(kafka: str) -> None:
    paced.send(kafka, TOPIC, PACE, MEASURED)
    found = arrived(read(kafka, PACE.records), 0)
    assert sorted(found.numbers.tolist()) == list(range(PACE.records))


def test_a_sender_that_stalls_does_not_shift_due_times(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls_s = iter((0.1,))
    send_all = Sender.send_all

    def stall_once(sender: Sender, values: list[bytes], partition: int) -> None:
        time.sleep(next(stalls_s, 0))
        send_all(sender, values, partition)

    monkeypatch.setattr(Sender, "send_all", stall_once)
    sent = paced.send(kafka, TOPIC, PACE, MEASURED)
    due_ns = np.sort(arrived(read(kafka, PACE.records), 0).due_ns)
    assert set(np.diff(due_ns).tolist()) == {1_000_000_000 // PACE.records_s}
    assert sent.behind_ms >= 100


def test_records_are_sent_until_the_event_is_set(kafka: str) -> None:
    ended = Event()
    ended.set()
    assert paced.send(kafka, TOPIC, PACE, WARM_UP, ended).behind_ms == 0


def test_a_full_queue_delays_a_batch_and_loses_nothing(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sender(kafka, TOPIC, 1) as sender:
        queue = {"bootstrap.servers": kafka, "queue.buffering.max.messages": 100, "log_level": 0}
        monkeypatch.setattr(sender, "_producer", Producer(queue))
        values = [b"%d" % number for number in range(250)]
        sender.send_all(values, 0)
    assert sorted(read(kafka, 250)) == sorted(values)


def test_a_value_that_the_producer_refuses_is_an_error(kafka: str) -> None:
    with Sender(kafka, TOPIC, 1) as sender, pytest.raises(ValueError, match="2000000 B"):
        sender.send_all([b"x" * 2_000_000], 0)
