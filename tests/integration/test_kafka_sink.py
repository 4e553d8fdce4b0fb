"""Rule 13 on a real broker: the faults that the Kafka sink survives. Each test fails without the rule."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from infra.local_services import Services
from infra.local_services.kafka import KafkaBroker
from infra.workspace import CHECKOUT
from sluicegate.errors import (
    MarkerMismatch,
    SettingsInvalid,
    SinkRejected,
    SinkUnavailable,
)
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.sinks.contract import PartDecision
from sluicegate.sinks.kafka.bound_sink import BoundKafka
from sluicegate.sinks.kafka.connection import Deadline
from sluicegate.sinks.kafka.errors import is_fenced
from sluicegate.sinks.kafka.writer import KafkaPartWriter
from tests.integration.kafka_crashing_writer import first_decision, staged_rows
from tests.integration.kafka_reader import read_topic
from tests.integration.kafka_topics import Topic, apply_until_done

pytestmark = pytest.mark.integration

HUNDRED_VALUES = [b"%d" % n for n in range(100)]
ABORT_INTERVAL_S = 10.0
"""In which a broker looks for expired transactions: the default of
transaction.abort.timed.out.transaction.cleanup.interval.ms."""

BEFORE_COMMIT = ("apply-begun", "apply-written", "apply-flushed", "before-commit")


@pytest.fixture
def topic(services: Services) -> Topic:
    return Topic(services.kafka)


# --- crashes --------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [*BEFORE_COMMIT, "after-commit"])
def test_rule_13_kill_9_before_or_after_the_commit_leaves_one_copy(
    topic: Topic, point: str
) -> None:
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "jobs/src")])
    process = subprocess.run(
        [sys.executable, "-m", "tests.integration.kafka_crashing_writer",
         topic.kafka.bootstrap, topic.name, topic.lineage, point],
        env={**os.environ, "PYTHONPATH": path},
        cwd=CHECKOUT,
        check=False,
        timeout=60,
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL
    receipt = apply_until_done(topic.sink(), first_decision(topic.lineage), HUNDRED_VALUES)
    assert receipt.verdict is (Verdict.SKIP if point == "after-commit" else Verdict.APPLY)
    assert topic.values() == HUNDRED_VALUES


def open_transaction(sink: BoundKafka) -> KafkaPartWriter:
    """Return a writer that does nothing more after it has written a row in a transaction."""
    dead = sink.open(0)
    assert dead._producer is not None
    dead._producer.begin()
    dead._producer.produce(sink.topic.name, iter([(b"never", None)]), Deadline(10))
    dead._producer.flush(Deadline(10))
    return dead


def test_rule_13_an_open_transaction_of_a_dead_writer_does_not_block_readers(topic: Topic) -> None:
    """Opening the part aborts it, long before the transaction timeout."""
    sink = topic.sink()
    dead = open_transaction(sink)
    sink.open(0).close()
    assert topic.values() == []
    dead.close()


@pytest.mark.slow
def test_without_a_successor_the_broker_aborts_the_transaction_of_a_dead_writer(
    topic: Topic,
) -> None:
    """After its timeout and at most ABORT_INTERVAL_S; a read_committed reader then reads on."""
    sink = topic.sink()
    dead = open_transaction(replace(sink, topic=replace(sink.topic, apply_timeout_s=5)))
    began = time.monotonic()
    other = Producer({"bootstrap.servers": topic.kafka.bootstrap})
    other.produce(topic.name, b"later")
    assert other.flush(10) == 0
    assert read_topic(topic.kafka.bootstrap, topic.name, stable=False) == []
    assert topic.values() == [b"later"]
    assert 1 < time.monotonic() - began < 5 + ABORT_INTERVAL_S + 5
    dead.close()


# --- markers --------------------------------------------------------------------------------


def test_rule_13_a_part_beyond_the_partitions_of_the_markers_is_refused(topic: Topic) -> None:
    with pytest.raises(SettingsInvalid, match=r"parts=1000.* sluicegate\.markers has \d+"):
        topic.sink(parts=1000)


def test_rule_13_a_part_beyond_the_partitions_of_the_topic_commits(topic: Topic) -> None:
    writer = topic.sink(parts=8).open(7)
    writer.apply(first_decision(topic.lineage), [staged_rows(HUNDRED_VALUES)])
    writer.close()
    assert len(topic.values()) == len(HUNDRED_VALUES)


def test_rule_13_a_recreated_topic_does_not_erase_the_markers(topic: Topic) -> None:
    apply_until_done(topic.sink(), first_decision(topic.lineage), HUNDRED_VALUES)
    topic.kafka.delete_topic(topic.name)
    topic.kafka.create_topic(topic.name)
    receipt = apply_until_done(topic.sink(), first_decision(topic.lineage), HUNDRED_VALUES)
    assert receipt.verdict is Verdict.SKIP


class ForgetfulBroker(KafkaBroker):
    """Forgets group offsets after a minute."""

    def _prepare(self) -> list[str]:
        command = super()._prepare()
        with Path(command[-1]).open("a", encoding="utf-8") as settings:
            settings.write("offsets.retention.minutes=1\noffsets.retention.check.interval.ms=500\n")
        return command


@pytest.mark.slow
def test_rule_13_a_refreshed_marker_outlives_the_retention_of_offsets(tmp_path: Path) -> None:
    broker = ForgetfulBroker(tmp_path)
    broker.start()
    try:
        refreshed, idle = Topic(broker.endpoint), Topic(broker.endpoint)
        for topic in (refreshed, idle):
            apply_until_done(topic.sink(), first_decision(topic.lineage), HUNDRED_VALUES)
        reader = idle.sink().open(0)
        time.sleep(30)
        refreshed.sink().open(0).close()
        deadline = time.monotonic() + 90
        while reader.marker() is not None:
            assert time.monotonic() < deadline, "the broker does not forget"
            time.sleep(0.5)
        reader.close()
        writer = refreshed.sink().open(0)
        assert writer.marker() == Marker(0, "a0")
        writer.close()
        expired = idle.sink().open(0)
        with pytest.raises(MarkerMismatch):  # the loss is detected, and nothing is written twice
            expired.apply(PartDecision(idle.lineage, Marker(1, "a1"), Marker(0, "a0")), [])
        expired.close()
    finally:
        broker.stop()


# --- sizes and delivery ---------------------------------------------------------------------


def test_rule_13_small_rows_pass_a_topic_with_a_small_limit(services: Services) -> None:
    """With librdkafka's default batch size all 2,000 fail: the broker refuses the batch."""
    small = Topic(services.kafka, {"max.message.bytes": "100000"})
    rows = [os.urandom(500) for _ in range(2000)]
    apply_until_done(small.sink(), first_decision(small.lineage), rows)
    assert small.values() == rows


def test_rule_13_a_record_over_the_limit_is_refused_when_it_is_staged(services: Services) -> None:
    small = Topic(services.kafka, {"max.message.bytes": "5000"})
    reasons = small.sink().refusals(staged_rows([b"fits", b"x" * 5001]))
    assert reasons is not None
    assert reasons.to_pylist()[0] is None
    assert "5098 bytes" in reasons.to_pylist()[1]
    assert "5000" in reasons.to_pylist()[1]


def test_rule_13_failed_deliveries_abort(topic: Topic) -> None:
    """`flush` returns without an error; a commit after it would lose the rows."""
    sink = topic.sink(compression="none")
    topic.set_config("max.message.bytes", "2000")
    writer = sink.open(0)
    with pytest.raises(SinkRejected, match="not delivered"):
        writer.apply(first_decision(topic.lineage), [staged_rows([b"small", os.urandom(3000)])])
    assert writer.marker() is None
    assert topic.values() == []
    topic.set_config("max.message.bytes", "10000")
    writer.apply(first_decision(topic.lineage), [staged_rows([b"small", b"x" * 3000])])
    assert len(topic.values()) == 2
    writer.close()


def test_rule_13_rows_beyond_the_queue_size_wait(topic: Topic) -> None:
    sink = topic.sink(config={"queue.buffering.max.messages": 500})
    rows = [b"%d" % n for n in range(20_000)]
    apply_until_done(sink, first_decision(topic.lineage), rows)
    assert topic.values() == rows


def test_rule_13_trace_context_and_headers_are_on_each_record(topic: Topic) -> None:
    sink = topic.sink(trace_headers=True)
    decision = replace(first_decision(topic.lineage), traceparent="00-aa-bb-01")
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = staged_rows([b"x", b"y"]).append_column("headers", headers)
    assert sink.refusals(batch) is None
    writer = sink.open(0)
    writer.apply(decision, [batch])
    writer.close()
    trace = ("traceparent", b"00-aa-bb-01")
    record_headers = [
        list(record.headers) for record in read_topic(topic.kafka.bootstrap, topic.name)
    ]
    assert record_headers == [[("a", b"1"), ("b", None), trace], [trace]]


# --- fencing --------------------------------------------------------------------------------


def test_rule_13_a_fenced_producer_backs_off_before_it_gives_up(topic: Topic) -> None:
    sink = topic.sink()
    fenced, second_writer = sink.open(0), sink.open(0)
    start = time.monotonic()
    with pytest.raises(SinkUnavailable, match="fenced"):
        fenced.apply(first_decision(topic.lineage), [staged_rows(HUNDRED_VALUES)])
    assert time.monotonic() - start >= 0.5
    fenced.apply(
        first_decision(topic.lineage), [staged_rows(HUNDRED_VALUES)]
    )  # the same writer, once more
    assert topic.values() == HUNDRED_VALUES
    fenced.close()
    second_writer.close()


def test_rule_13_a_record_after_the_fatal_error_says_that_the_producer_is_fenced(
    topic: Topic,
) -> None:
    """It learns of that in the background; librdkafka then refuses each record with "fatal error"."""
    sink = topic.sink()
    writer = sink.open(0)
    fenced = writer._producer
    assert fenced is not None
    fenced.begin()
    second_writer = sink.open(0)
    deadline = Deadline(10)

    def rows() -> Iterator[tuple[bytes, None]]:
        while not deadline.passed():
            yield b"row", None
            time.sleep(0.05)

    with pytest.raises(KafkaException) as raised:
        fenced.produce(topic.name, rows(), deadline)
    assert is_fenced(raised.value)
    writer.close()
    second_writer.close()


def test_rule_13_two_drivers_on_one_part_do_not_fence_each_other_forever(topic: Topic) -> None:
    epochs, errors = 5, list[BaseException]()

    def run() -> None:
        sink = topic.sink()
        try:
            for n in range(epochs):
                prev = Marker(n - 1, f"a{n - 1}") if n else NO_MARKER
                decision = PartDecision(topic.lineage, Marker(n, f"a{n}"), prev)
                apply_until_done(sink, decision, [b"%d" % n])
        except BaseException as error:  # noqa: BLE001 - a thread's error must reach the test
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The driver that lags by an epoch gets Fenced, as a second driver of a lineage should.
    assert all(type(error).__name__ == "Fenced" for error in errors)
    assert topic.values() == [b"%d" % n for n in range(epochs)]


# --- the broker -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that the tests may stop."""
    broker = KafkaBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


def _kill_and_start(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fault", [KafkaBroker.restart, _kill_and_start])
@pytest.mark.parametrize("point", ["apply-written", "before-commit", "after-commit"])
def test_rule_13_a_broker_that_restarts_during_an_apply_leaves_one_copy(
    broker: KafkaBroker, point: str, fault: Callable[[KafkaBroker], None]
) -> None:
    topic = Topic(broker.endpoint)
    sink, reached_points = topic.sink(), list[str]()

    def reach(current: str) -> None:
        if current == point and not reached_points:
            reached_points.append(current)
            fault(broker)

    # Killed right after the commit, the broker may forget to end the transaction; the next writer
    # aborts it (`KafkaPartWriter._read_settled_marker`).
    apply_until_done(sink, replace(first_decision(topic.lineage), reach=reach), HUNDRED_VALUES)
    assert reached_points
    next_decision = PartDecision(topic.lineage, Marker(1, "a1"), Marker(0, "a0"))
    apply_until_done(sink, next_decision, [b"next"])
    assert topic.values() == [*HUNDRED_VALUES, b"next"]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fault", [KafkaBroker.restart, _kill_and_start])
def test_rule_13_a_writer_survives_a_broker_restart_between_epochs(
    broker: KafkaBroker, fault: Callable[[KafkaBroker], None]
) -> None:
    """A call of librdkafka would never return (`producer._bounded`): the writer takes a new producer."""
    topic = Topic(broker.endpoint)
    writer = topic.sink().open(0)
    writer.apply(first_decision(topic.lineage), [staged_rows(HUNDRED_VALUES)])
    fault(broker)
    next_decision = PartDecision(topic.lineage, Marker(1, "a1"), Marker(0, "a0"))
    writer.apply(next_decision, [staged_rows([b"next"])])
    assert writer.marker() == Marker(1, "a1")
    assert topic.values() == [*HUNDRED_VALUES, b"next"]
    writer.close()


@pytest.mark.slow
@pytest.mark.faults
def test_rule_13_a_frozen_broker_fails_the_apply_within_its_timeout(
    broker: KafkaBroker,
) -> None:
    topic = Topic(broker.endpoint)
    sink = topic.sink()
    writer = replace(sink, topic=replace(sink.topic, apply_timeout_s=3.0)).open(0)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(SinkUnavailable):
            writer.apply(first_decision(topic.lineage), [staged_rows(HUNDRED_VALUES)])
        assert time.monotonic() - start < 6
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    writer.close()
    apply_until_done(topic.sink(), first_decision(topic.lineage), HUNDRED_VALUES)
    assert topic.values() == HUNDRED_VALUES
