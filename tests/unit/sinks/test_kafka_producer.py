"""Producers whose client is stuck: librdkafka runs, and no broker exists."""

from __future__ import annotations

import logging
import time
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from sluicegate.errors import SinkRejected
from sluicegate.protocol.markers import Marker
from sluicegate.sinks.kafka import producer
from sluicegate.sinks.kafka.connection import Connection, Deadline
from sluicegate.sinks.kafka.errors import apply_error
from sluicegate.sinks.kafka.marker_reader import MarkerReader
from sluicegate.sinks.kafka.producer import TransactionalProducer, producer_settings
from sluicegate.sinks.kafka.topic import transaction_timeout_ms

FORGOTTEN = (
    "%s [%s] %s",
    "METADATAUPDATE",
    "rdkafka#producer-1",
    "new leader-1 not found in cache",
)
OTHER = ("%s [%s] %s", "METADATAUPDATE", "rdkafka#producer-1", "Topic t(id) not found in cache")

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log.connection.close": False}
"""Without a transactional id, a record can be queued although no broker answers."""


@pytest.mark.parametrize(
    ("config", "transaction_ms", "answer_ms"),
    [({}, 60_000, 15_000), ({}, 5_000, 5_000), ({"socket.timeout.ms": "30000"}, 60_000, 30_000)],
)
def test_a_broker_without_an_answer_is_given_up_long_before_an_apply_ends(
    config: dict[str, str], transaction_ms: int, answer_ms: int
) -> None:
    """A pod that is killed leaves connections that nobody resets. librdkafka accepts the settings."""
    settings = producer_settings(
        Connection("127.0.0.1:1", config),
        "t.1",
        record_bytes=1_000_000,
        transaction_timeout_ms=transaction_ms,
        delivery_timeout_ms=60_000,
        compression="lz4",
    )
    assert settings["socket.timeout.ms"] == answer_ms
    TransactionalProducer(settings).discard(abort=False)


@pytest.mark.parametrize(
    ("apply_s", "transaction_ms"), [(60.0, 60_000), (0.0015, 1000), (2.0001, 2001)]
)
def test_a_transaction_times_out_as_its_apply_does(apply_s: float, transaction_ms: int) -> None:
    """Not before, and readers do not wait longer for a dead writer. librdkafka allows no less than 1 s."""
    assert transaction_timeout_ms(apply_s) == transaction_ms


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> TransactionalProducer:
    """Return a producer with a record in its queue."""
    monkeypatch.setattr(producer, "_CHECK_EVERY_S", 0.1)
    made = TransactionalProducer(dict(NOBODY))
    made.produce("topic", iter([(b"value",)]), Deadline(1))
    return made


def test_a_flush_ends_when_librdkafka_has_forgotten_a_leader(stuck: TransactionalProducer) -> None:
    """It would wait for the timeout of the records: librdkafka's issue 5430."""
    stuck._client_log.log(logging.WARNING, *FORGOTTEN)
    started = time.monotonic()
    with pytest.raises(KafkaException) as raised:
        stuck.flush(Deadline(30))
    assert raised.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
    assert time.monotonic() - started < 5
    stuck.discard(abort=False)


def test_a_flush_goes_on_after_other_lines_until_its_deadline(stuck: TransactionalProducer) -> None:
    stuck._client_log.log(logging.WARNING, *OTHER)
    with pytest.raises(KafkaException, match="1 records are unacknowledged"):
        stuck.flush(Deadline(0.3))
    stuck.discard(abort=False)


def test_a_producer_without_its_broker_says_so(stuck: TransactionalProducer) -> None:
    deadline = Deadline(10)
    while not (lost := stuck.must_be_replaced()) and not deadline.passed():
        time.sleep(0.05)
    assert lost
    stuck.discard(abort=False)


@pytest.mark.parametrize(("lost", "limit_s"), [(False, 10.0), (True, 2.0)])
def test_a_marker_is_waited_for_less_long_after_a_broker_has_gone(
    stuck: TransactionalProducer,
    monkeypatch: pytest.MonkeyPatch,
    lost: bool,  # noqa: FBT001
    limit_s: float,
) -> None:
    """Librdkafka may wait for the group's former coordinator forever: its issue 5511."""
    timeouts: list[float] = []
    monkeypatch.setattr(
        producer, "_bounded", lambda _call, timeout_s, *_: timeouts.append(timeout_s)
    )
    stuck._lost_connection = lost
    stuck.send_marker(Mock(spec=MarkerReader), Marker(0, "attempt"), Deadline(60))
    assert timeouts == [limit_s]
    stuck.discard(abort=False)


def test_a_record_whose_time_the_broker_rejects_says_to_check_the_clocks() -> None:
    rejected = KafkaException(KafkaError(KafkaError.INVALID_TIMESTAMP))
    error = apply_error(rejected, "topic t, part 0", "flushing")
    assert isinstance(error, SinkRejected)
    assert "check the clocks" in error.do
