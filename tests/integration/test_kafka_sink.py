"""Rule 13 on a real broker: what the Kafka sink survives. Each test fails without its rule."""

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

from infra.embedded import Services
from infra.embedded.kafka import KafkaBroker
from sluicegate.protocol.errors import (
    MarkerMismatch,
    SettingsInvalid,
    SinkRejected,
    SinkUnavailable,
    TransactionTimeoutInvalid,
)
from sluicegate.protocol.markers import GENESIS, Marker, Verdict
from sluicegate.sinks.contract import PartDecision
from sluicegate.sinks.kafka.clients import Deadline
from sluicegate.sinks.kafka.committed import CommittedMarker
from sluicegate.sinks.kafka.faults import Unsettled

from .kafka_reader import read_topic
from .kafka_topic import Topic, apply_until_done
from .kafka_victim import first_epoch, staged

pytestmark = pytest.mark.integration

CHECKOUT = Path(__file__).resolve().parents[2]
HUNDRED = [b"%d" % n for n in range(100)]
BEFORE_COMMIT = ("apply-begun", "apply-written", "before-commit")


@pytest.fixture
def topic(services: Services) -> Topic:
    return Topic(services.kafka)


# --- death ----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [*BEFORE_COMMIT, "after-commit"])
def test_rule_13_kill_9_on_either_side_of_the_commit_leaves_one_copy(
    topic: Topic, point: str
) -> None:
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "jobs/src")])
    victim = subprocess.run(
        [sys.executable, "-m", "tests.integration.kafka_victim",
         topic.kafka.bootstrap, topic.name, topic.lineage, point],
        env={**os.environ, "PYTHONPATH": path},
        cwd=CHECKOUT,
        check=False,
        timeout=60,
    )  # fmt: skip
    assert victim.returncode == -signal.SIGKILL
    receipt = apply_until_done(topic.sink(), first_epoch(topic.lineage), HUNDRED)
    assert receipt.verdict is (Verdict.SKIP if point == "after-commit" else Verdict.APPLY)
    assert topic.values() == HUNDRED


def test_rule_13_an_open_transaction_of_the_dead_does_not_block_readers(topic: Topic) -> None:
    """Opening the part ends it, long before the transaction timeout would."""
    sink = topic.sink()
    dead = sink.open(0)
    assert dead._producer is not None
    dead._producer.begin()
    dead._producer.produce(topic.name, iter([(b"never", None)]), Deadline(10))
    dead._producer.flush(Deadline(10))
    sink.open(0).close()
    assert topic.values() == []
    dead.close()


# --- markers --------------------------------------------------------------------------------


def test_rule_13_a_part_beyond_the_partitions_of_the_markers_is_refused(topic: Topic) -> None:
    with pytest.raises(SettingsInvalid, match=r"parts=1000.* sluicegate\.markers has \d+"):
        topic.sink(parts=1000)


def test_rule_13_a_part_beyond_the_partitions_of_the_topic_commits(topic: Topic) -> None:
    writer = topic.sink(parts=8).open(7)
    writer.apply(first_epoch(topic.lineage), [staged(HUNDRED)])
    writer.close()
    assert len(topic.values()) == len(HUNDRED)


def test_rule_13_a_recreated_topic_does_not_erase_the_markers(topic: Topic) -> None:
    apply_until_done(topic.sink(), first_epoch(topic.lineage), HUNDRED)
    topic.kafka.delete_topic(topic.name)
    topic.kafka.create_topic(topic.name)
    again = apply_until_done(topic.sink(), first_epoch(topic.lineage), HUNDRED)
    assert again.verdict is Verdict.SKIP


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
        kept, left = Topic(broker.endpoint), Topic(broker.endpoint)
        for one in (kept, left):
            apply_until_done(one.sink(), first_epoch(one.lineage), HUNDRED)
        end = time.monotonic() + 75
        while time.monotonic() < end:
            writer = kept.sink().open(0)
            time.sleep(10)
            writer.close()
        writer = kept.sink().open(0)
        assert writer.marker() == Marker(0, "a0")
        writer.close()
        gone = left.sink().open(0)
        with pytest.raises(MarkerMismatch):  # the loss is seen, and nothing is written twice
            gone.apply(PartDecision(left.lineage, Marker(1, "a1"), Marker(0, "a0")), [])
        gone.close()
    finally:
        broker.stop()


# --- sizes and delivery ---------------------------------------------------------------------


def test_rule_13_small_rows_pass_a_topic_with_a_small_limit(services: Services) -> None:
    """With librdkafka's own batch size all 2,000 fail: the broker refuses the batch."""
    small = Topic(services.kafka, {"max.message.bytes": "100000"})
    rows = [os.urandom(500) for _ in range(2000)]
    apply_until_done(small.sink(), first_epoch(small.lineage), rows)
    assert small.values() == rows


def test_rule_13_a_record_over_the_limit_is_refused_when_it_is_staged(services: Services) -> None:
    small = Topic(services.kafka, {"max.message.bytes": "5000"})
    reasons = small.sink().refusals(staged([b"fits", b"x" * 5001]))
    assert reasons is not None
    assert reasons.to_pylist()[0] is None
    assert "5098 bytes" in reasons.to_pylist()[1]
    assert "5000" in reasons.to_pylist()[1]


def test_rule_13_failed_deliveries_abort(topic: Topic) -> None:
    """`flush` returns as if nothing were wrong; a commit after it would lose the rows."""
    sink = topic.sink(compression="none")
    topic.set("max.message.bytes", "2000")
    writer = sink.open(0)
    with pytest.raises(SinkRejected, match="not delivered"):
        writer.apply(first_epoch(topic.lineage), [staged([b"small", os.urandom(3000)])])
    assert writer.marker() is None
    assert topic.values() == []
    topic.set("max.message.bytes", "10000")
    writer.apply(first_epoch(topic.lineage), [staged([b"small", b"x" * 3000])])
    assert len(topic.values()) == 2
    writer.close()


def test_rule_13_rows_that_overfill_the_queue_wait_for_room(topic: Topic) -> None:
    sink = topic.sink(config={"queue.buffering.max.messages": 500})
    rows = [b"%d" % n for n in range(20_000)]
    apply_until_done(sink, first_epoch(topic.lineage), rows)
    assert topic.values() == rows


def test_rule_13_trace_context_and_headers_are_on_each_record(topic: Topic) -> None:
    sink = topic.sink(trace_headers=True)
    decision = replace(first_epoch(topic.lineage), traceparent="00-aa-bb-01")
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = staged([b"x", b"y"]).append_column("headers", headers)
    assert sink.refusals(batch) is None
    writer = sink.open(0)
    writer.apply(decision, [batch])
    writer.close()
    trace = ("traceparent", b"00-aa-bb-01")
    seen = [record.headers for record in read_topic(topic.kafka.bootstrap, topic.name)]
    assert seen == [[("a", b"1"), ("b", None), trace], [trace]]


# --- fencing --------------------------------------------------------------------------------


def test_rule_13_a_fenced_producer_backs_off_before_it_gives_up(topic: Topic) -> None:
    sink = topic.sink()
    fenced, other = sink.open(0), sink.open(0)
    start = time.monotonic()
    with pytest.raises(SinkUnavailable, match="fenced"):
        fenced.apply(first_epoch(topic.lineage), [staged(HUNDRED)])
    assert time.monotonic() - start >= 0.5
    fenced.apply(first_epoch(topic.lineage), [staged(HUNDRED)])  # the same writer, once more
    assert topic.values() == HUNDRED
    fenced.close()
    other.close()


def test_rule_13_two_drivers_on_one_part_do_not_fence_each_other_for_ever(topic: Topic) -> None:
    epochs, failed = 5, list[BaseException]()

    def run() -> None:
        sink = topic.sink()
        try:
            for n in range(epochs):
                prev = Marker(n - 1, f"a{n - 1}") if n else GENESIS
                decision = PartDecision(topic.lineage, Marker(n, f"a{n}"), prev)
                apply_until_done(sink, decision, [b"%d" % n])
        except BaseException as error:  # noqa: BLE001 - a thread's error must reach the test
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Whoever is an epoch behind meets Fenced, as a second driver of one lineage should.
    assert all(type(error).__name__ == "Fenced" for error in failed)
    assert topic.values() == [b"%d" % n for n in range(epochs)]


def test_rule_13_a_transaction_that_the_broker_forgot_is_aborted_when_the_part_opens(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is aborted is never seen, in any partition, and takes no committed marker along."""
    apply_until_done(topic.sink(), first_epoch(topic.lineage), HUNDRED)
    truly, asked = CommittedMarker.read, list[CommittedMarker]()

    def read(self: CommittedMarker, deadline: Deadline) -> Marker | None:
        asked.append(self)
        if len(asked) == 1:
            raise Unsettled("pending", data="d", do="d")
        return truly(self, deadline)

    monkeypatch.setattr(CommittedMarker, "read", read)
    writer = topic.sink().open(0)
    assert len(asked) == 2
    assert writer.marker() == Marker(0, "a0")
    assert topic.values() == HUNDRED
    writer.close()


# --- the broker -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of our own, to stop."""
    own = KafkaBroker(tmp_path_factory.mktemp("broker"))
    own.start()
    yield own
    own.stop()


def _kill_and_start(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fault", [KafkaBroker.restart, _kill_and_start])
@pytest.mark.parametrize("point", ["apply-written", "before-commit", "after-commit"])
def test_rule_13_a_broker_that_restarts_in_mid_apply_leaves_one_copy(
    broker: KafkaBroker, point: str, fault: Callable[[KafkaBroker], None]
) -> None:
    topic = Topic(broker.endpoint)
    sink, hit = topic.sink(), list[str]()

    def reach(reached: str) -> None:
        if reached == point and not hit:
            hit.append(reached)
            fault(broker)

    # Killed right after the commit, the broker may forget to end the transaction: the writer that
    # comes next ends it (`KafkaPartWriter._settled_marker`).
    apply_until_done(sink, replace(first_epoch(topic.lineage), reach=reach), HUNDRED)
    assert hit
    following = PartDecision(topic.lineage, Marker(1, "a1"), Marker(0, "a0"))
    apply_until_done(sink, following, [b"next"])
    assert topic.values() == [*HUNDRED, b"next"]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fault", [KafkaBroker.restart, _kill_and_start])
def test_rule_13_a_writer_outlives_a_broker_that_restarts_between_epochs(
    broker: KafkaBroker, fault: Callable[[KafkaBroker], None]
) -> None:
    """Librdkafka's own call then never returns (see `producers._bounded`); a retry is due."""
    topic = Topic(broker.endpoint)
    writer = topic.sink().open(0)
    writer.apply(first_epoch(topic.lineage), [staged(HUNDRED)])
    fault(broker)
    following = PartDecision(topic.lineage, Marker(1, "a1"), Marker(0, "a0"))
    for _ in range(3):
        try:
            writer.apply(following, [staged([b"next"])])
        except SinkUnavailable:
            continue
        break
    assert writer.marker() == Marker(1, "a1")
    assert topic.values() == [*HUNDRED, b"next"]
    writer.close()


@pytest.mark.slow
@pytest.mark.faults
def test_rule_13_a_silent_broker_is_given_up_within_the_apply_timeout(
    broker: KafkaBroker,
) -> None:
    topic = Topic(broker.endpoint)
    writer = replace(topic.sink(), apply_timeout_s=3.0).open(0)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(SinkUnavailable):
            writer.apply(first_epoch(topic.lineage), [staged(HUNDRED)])
        assert time.monotonic() - start < 6
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    writer.close()
    apply_until_done(topic.sink(), first_epoch(topic.lineage), HUNDRED)
    assert topic.values() == HUNDRED


def test_rule_13_a_transaction_timeout_above_the_brokers_is_refused(topic: Topic) -> None:
    with pytest.raises(TransactionTimeoutInvalid, match=r"86400000.*transaction\.max\.timeout\.ms"):
        topic.sink(transaction_timeout_ms=86_400_000)


def test_rule_13_a_transaction_must_outlast_the_apply(topic: Topic) -> None:
    with pytest.raises(TransactionTimeoutInvalid, match=r"10000.*20000"):
        topic.sink(transaction_timeout_ms=10_000)
