"""A Kafka marker is found after its group offset has expired (rule 11), on a real broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.local_services import Services
from sluicegate.errors import MarkerMismatch, SinkRegressed, SinkUnavailable
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.sinks.contract import PartDecision
from sluicegate.sinks.kafka.connection import MARKERS_TOPIC, Connection, Deadline, group_id
from sluicegate.sinks.kafka.marker_reader import MarkerReader, committed_marker
from tests.integration.kafka_crashing_writer import staged_rows
from tests.integration.kafka_topics import Topic, apply_until_done

pytestmark = pytest.mark.integration

MARKERS = [Marker(n, f"a{n}") for n in range(4)]


class ExpiringTopic(Topic):
    """A topic whose marker expires when a test says so."""

    def apply(self, epoch: int, **changes: object) -> Verdict:
        """Apply an epoch that writes its number; `changes` are fields of the decision."""
        prev = MARKERS[epoch - 1] if epoch else NO_MARKER
        decision = PartDecision(self.lineage, MARKERS[epoch], prev, durable_markers=True)
        changed = replace(decision, **changes)  # type: ignore[arg-type] # any field
        return apply_until_done(self.sink(), changed, [b"%d" % epoch]).verdict

    def expire(self) -> None:
        """Delete the group: the broker does nothing else when the last group offset expires."""
        group = group_id(self.lineage, self.sink().id)
        admin = self.kafka.admin()
        admin.delete_consumer_groups([group])[group].result(timeout=20)

    def marker(self) -> Marker | None:
        """Return the marker as the commands read it."""
        connection = Connection(self.kafka.bootstrap)
        return committed_marker(connection, self.lineage, self.sink().id, 0)

    def reader(self) -> MarkerReader:
        return MarkerReader(
            Connection(self.kafka.bootstrap), group_id(self.lineage, self.sink().id), 0
        )


@pytest.fixture
def topic(services: Services) -> ExpiringTopic:
    """Return a topic that has epochs 0 and 1, and whose marker has expired."""
    topic = ExpiringTopic(services.kafka)
    for epoch in (0, 1):
        topic.apply(epoch)
    topic.expire()
    return topic


def test_rule_11_an_epoch_that_the_topic_has_is_skipped(topic: ExpiringTopic) -> None:
    assert topic.apply(1) is Verdict.SKIP
    assert topic.values() == [b"0", b"1"]


def test_rule_11_an_epoch_that_the_topic_lacks_is_applied(topic: ExpiringTopic) -> None:
    assert topic.apply(2) is Verdict.APPLY
    assert topic.values() == [b"0", b"1", b"2"]


def test_rule_11_the_group_offset_is_committed_again(topic: ExpiringTopic) -> None:
    topic.apply(1)
    reader = topic.reader()
    assert reader.read(Deadline(10)) == MARKERS[1]
    reader.close()


def test_rule_11_the_marker_of_an_aborted_transaction_does_not_count(topic: ExpiringTopic) -> None:
    """A writer dies before its commit; its epoch is applied after its marker has expired."""
    dead = topic.sink().open(0)

    def die(point: str) -> None:
        if point == "before-commit":
            raise KeyboardInterrupt

    decision = PartDecision(topic.lineage, MARKERS[2], MARKERS[1], durable_markers=True, reach=die)
    with pytest.raises(KeyboardInterrupt):
        dead.apply(decision, [staged_rows([b"2"])])
    dead.close()
    topic.expire()
    assert topic.apply(2) is Verdict.APPLY
    assert topic.values() == [b"0", b"1", b"2"]


def test_rule_11_a_marker_of_another_history_still_stops_the_job(topic: ExpiringTopic) -> None:
    with pytest.raises(SinkRegressed):
        topic.apply(3)
    assert topic.values() == [b"0", b"1"]


def test_rule_11_an_epoch_of_an_earlier_version_is_not_judged_by_a_durable_marker(
    topic: ExpiringTopic,
) -> None:
    """That version wrote none, so it may have applied the epoch after the durable marker."""
    with pytest.raises(MarkerMismatch, match="the marker is absent"):
        topic.apply(2, durable_markers=False)


def test_rule_11_the_commands_show_a_marker_that_has_expired(topic: ExpiringTopic) -> None:
    assert topic.marker() == MARKERS[1]


def test_a_part_that_was_never_written_has_no_marker(services: Services) -> None:
    assert ExpiringTopic(services.kafka).marker() is None


def test_rule_11_a_durable_marker_behind_an_open_transaction_is_waited_for(
    topic: ExpiringTopic,
) -> None:
    """A reader of committed records would get the marker before it, without an error."""
    other = ExpiringTopic(topic.kafka)
    writer, connection = other.sink().open(0), topic.reader()
    producer = writer._producer
    assert producer is not None
    producer.begin()
    producer.produce(MARKERS_TOPIC, iter([(b"open", b"open", 0)]), Deadline(10))
    producer.flush(Deadline(10))
    with pytest.raises(SinkUnavailable, match="a transaction is open"):
        connection.read_durable(Deadline(1))
    writer.close()
    assert connection.read_durable(Deadline(10)) == MARKERS[1]
    connection.close()
