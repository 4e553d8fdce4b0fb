"""Rule 13 where a broker forgot to end a transaction, as Kafka 4.3 and 4.4 do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from infra.local_services import Services
from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.sinks.contract import PartDecision
from sluicegate.sinks.kafka.connection import MARKERS_TOPIC, Connection, Deadline, group_id
from sluicegate.sinks.kafka.errors import MarkerPending
from sluicegate.sinks.kafka.marker_reader import MarkerReader
from sluicegate.sinks.kafka.producer import TransactionalProducer, producer_settings
from tests.integration.kafka_crashing_writer import first_decision
from tests.integration.kafka_reader import read_topic
from tests.integration.kafka_topics import Topic, apply_until_done

pytestmark = pytest.mark.integration

VALUES = [b"%d" % n for n in range(100)]


@pytest.fixture
def topic(services: Services) -> Topic:
    return Topic(services.kafka)


@pytest.fixture
def forgotten(topic: Topic) -> Iterator[TransactionalProducer]:
    """Epoch 1 after epoch 0: a row and the durable marker in an open transaction, of another producer."""
    apply_until_done(topic.sink(), first_decision(topic.lineage), VALUES)
    producer = _open_transaction(topic)
    yield producer
    producer.discard(abort=True)


def _open_transaction(topic: Topic) -> TransactionalProducer:
    connection = Connection(topic.kafka.bootstrap)
    settings = producer_settings(
        connection,
        f"forgotten-{topic.lineage}",
        record_bytes=1_000_000,
        transaction_timeout_ms=60_000,
        delivery_timeout_ms=10_000,
        compression="none",
    )
    reader = MarkerReader(connection, group_id(topic.lineage, topic.sink().topic.sink_id), 0)
    producer = TransactionalProducer(settings)
    producer.init(Deadline(10))
    producer.begin()
    producer.produce(topic.name, iter([(b"next", None)]), Deadline(10))
    producer.produce(MARKERS_TOPIC, iter([reader.durable(Marker(1, "a1"))]), Deadline(10))
    producer.flush(Deadline(10))
    reader.close()
    return producer


@pytest.fixture
def marker_of_opened_part(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Marker | None]:
    """Opens the part; its first read finds the marker pending, as behind a forgotten transaction."""
    original, calls = MarkerReader.read, list[MarkerReader]()

    def read(self: MarkerReader, deadline: Deadline) -> Marker | None:
        calls.append(self)
        if len(calls) == 1:
            raise MarkerPending("pending", data="d", do="d")
        return original(self, deadline)

    def open_part() -> Marker | None:
        monkeypatch.setattr(MarkerReader, "read", read)
        writer = topic.sink().open(0)
        try:
            return writer.marker()
        finally:
            writer.close()

    return open_part


def test_rule_13_a_forgotten_transaction_that_is_open_is_aborted_when_the_part_opens(
    topic: Topic,
    forgotten: TransactionalProducer,
    marker_of_opened_part: Callable[[], Marker | None],
) -> None:
    """Its records are visible in no partition, and no committed marker is lost."""
    assert marker_of_opened_part() == Marker(0, "a0")
    forgotten.abort()
    assert topic.values() == VALUES


def test_rule_13_a_forgotten_transaction_that_is_aborted_is_not_committed(
    topic: Topic,
    forgotten: TransactionalProducer,
    marker_of_opened_part: Callable[[], Marker | None],
) -> None:
    forgotten.abort()
    assert topic.values() == VALUES
    assert marker_of_opened_part() == Marker(0, "a0")


def test_rule_13_a_forgotten_transaction_whose_rows_are_committed_is_not_applied_again(
    topic: Topic,
    forgotten: TransactionalProducer,
    marker_of_opened_part: Callable[[], Marker | None],
) -> None:
    """A broker was killed between ending a transaction in the topic and in the group: 100 duplicates."""
    forgotten.commit(Deadline(10))
    assert read_topic(topic.kafka.bootstrap, MARKERS_TOPIC)
    assert marker_of_opened_part() == Marker(1, "a1")
    next_decision = PartDecision(topic.lineage, Marker(1, "a1"), Marker(0, "a0"))
    assert apply_until_done(topic.sink(), next_decision, [b"next"]).verdict is Verdict.SKIP
    assert topic.values() == [*VALUES, b"next"]


def test_rule_13_a_forgotten_transaction_behind_an_open_one_of_another_job_is_in_doubt(
    topic: Topic, marker_of_opened_part: Callable[[], Marker | None]
) -> None:
    apply_until_done(topic.sink(), first_decision(topic.lineage), VALUES)
    producers = [_open_transaction(Topic(topic.kafka)), _open_transaction(topic)]
    with pytest.raises(MarkerPending, match="another job is open"):
        marker_of_opened_part()
    for producer in producers:
        producer.discard(abort=True)
