"""What a topic and its brokers are like, asked before anything is decided; and our markers topic.

Not here: how records are written. The only thing that is created is `sluicegate.markers`; users'
topics are theirs. Called by `KafkaSink.bind`, on the driver.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from sluicegate.protocol.errors import (
    SettingsInvalid,
    SluicegateError,
    TargetMissing,
    TransactionTimeoutInvalid,
)
from sluicegate.sinks.kafka import faults
from sluicegate.sinks.kafka.clients import (
    MARKERS_PARTITIONS,
    MARKERS_TOPIC,
    RDKAFKA_LOG,
    Connection,
    Deadline,
)

_WAIT_S = 10.0
_SLICE_S = 0.5
_PAUSE_S = 0.05
_METADATA_LAG_S = 2.0
_ANY_AGE_MS = 2**63 - 1
"""What Kafka says where a record may be of any time."""


@dataclass(frozen=True)
class Found:
    """What the preflight has found. See `BoundKafka` for the meanings."""

    partitions: int
    record_limit_bytes: int
    keys_required: bool
    offsets_retention_min: int
    timestamp_ahead_ms: int = 2**63 - 1


class Preflight:
    """One look at a cluster, with one deadline for all of it."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._address, self._topic = connection.bootstrap, topic
        self._deadline = Deadline(_WAIT_S)
        self._heard: list[KafkaError] = []
        settings: dict[str, Any] = {**connection.settings(), "error_cb": self._heard.append}
        self._admin = AdminClient(settings, logger=RDKAFKA_LOG)

    def run(self, *, parts: int, transaction_timeout_ms: int, timed: bool = False) -> Found:
        """Check everything and return what was found.

        Args:
            parts: of the sink.
            transaction_timeout_ms: of its producers.
            timed: whether records carry a time of their own.

        Raises:
            SinkUnavailable, AccessDenied, TargetMissing, TransactionTimeoutInvalid, SettingsInvalid.
        """
        broker = self._any_broker()
        partitions = self._wait_for(self._topic, Deadline(_METADATA_LAG_S))
        if partitions is None:
            raise TargetMissing(
                f"Kafka at {self._address}: there is no topic {self._topic}",
                data="nothing was read or written; Sluicegate creates no topics but its own",
                do=f"kafka-topics.sh --bootstrap-server {self._address} --create --topic {self._topic} "
                "--partitions <n>",
            )
        topic = self._configs(ResourceType.TOPIC, self._topic)
        cluster = self._configs(ResourceType.BROKER, broker)
        self._check_timeout(transaction_timeout_ms, int(cluster["transaction.max.timeout.ms"]))
        self._check_parts(parts)
        if timed:
            self._check_age(int(topic.get("message.timestamp.before.max.ms") or _ANY_AGE_MS))
        return Found(
            partitions=partitions,
            record_limit_bytes=int(topic["max.message.bytes"]),
            keys_required="compact" in topic["cleanup.policy"],
            offsets_retention_min=int(cluster["offsets.retention.minutes"]),
            timestamp_ahead_ms=int(topic.get("message.timestamp.after.max.ms") or _ANY_AGE_MS),
        )

    def _any_broker(self) -> str:
        """Return a broker's id. A wrong password looks like silence but for what `error_cb` hears."""
        while True:
            try:
                brokers = self._admin.list_topics(
                    MARKERS_TOPIC, timeout=self._deadline.left(_SLICE_S)
                ).brokers
                return str(min(brokers))
            except KafkaException as raised:
                self._admin.poll(0)
                denied = next((e for e in self._heard if faults.is_denial(e.name())), None)
                if denied or self._deadline.passed():
                    # The first thing heard is why: later ones only say that all brokers are down.
                    reason = denied or next(iter(self._heard), faults.error_of(raised))
                    raise self._error(reason, "connecting") from raised

    def _wait_for(self, topic: str, patience: Deadline) -> int | None:
        """Return the number of partitions; waits, as brokers learn of a new topic a little late."""
        while (there := self._partitions(topic)) is None and not patience.passed():
            time.sleep(_PAUSE_S)
        return there

    def _partitions(self, topic: str) -> int | None:
        """Return the number of partitions, None if there is no such topic. Never creates it."""
        asked = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=self._deadline.left()
        )
        try:
            return len(asked[topic].result(self._deadline.left()).partitions)
        except KafkaException as raised:
            if faults.error_of(raised).name() == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise self._error(faults.error_of(raised), f"looking for topic {topic}") from raised

    def _configs(self, kind: ResourceType, name: str) -> dict[str, str]:
        resource = ConfigResource(kind, name)
        while True:
            asked = self._admin.describe_configs([resource], request_timeout=self._deadline.left())
            try:
                found: dict[str, Any] = asked[resource].result(self._deadline.left())
                return {name: entry.value or "" for name, entry in found.items()}
            except KafkaException as raised:
                error = faults.error_of(raised)
                # A topic made a moment ago is not known to every broker yet; ours was just described.
                if error.name() != "UNKNOWN_TOPIC_OR_PART" or self._deadline.passed():
                    raise self._error(
                        error, f"reading settings of {kind.name.lower()} {name}"
                    ) from raised
                time.sleep(_PAUSE_S)

    def _check_timeout(self, wanted_ms: int, allowed_ms: int) -> None:
        if wanted_ms > allowed_ms:
            raise TransactionTimeoutInvalid(
                f"Kafka at {self._address}: transaction_timeout_ms={wanted_ms} is above the broker's "
                f"transaction.max.timeout.ms={allowed_ms}",
                data="nothing was read or written",
                do=f"set transaction_timeout_ms to {allowed_ms} at most and the epoch timeout below it, "
                "or raise the broker's transaction.max.timeout.ms",
            )

    def _check_age(self, oldest_ms: int) -> None:
        """Refuse a topic that takes no old records: a decided epoch only grows older."""
        if oldest_ms < _ANY_AGE_MS:
            raise SettingsInvalid(
                f"topic {self._topic} takes no record older than {oldest_ms} ms "
                "(message.timestamp.before.max.ms), and the sink gives records their own time",
                data="nothing was read or written; an epoch applied late would be refused for ever",
                do=f"remove message.timestamp.before.max.ms of {self._topic}, or leave timestamp= out",
            )

    def _check_parts(self, parts: int) -> None:
        """See that every part has a partition to keep its marker at (rule 13)."""
        there = self._partitions(MARKERS_TOPIC) or self._create_markers()
        if parts > there:
            raise SettingsInvalid(
                f"topic {self._topic}: parts={parts}, but topic {MARKERS_TOPIC} has {there} partitions",
                data="nothing was read or written; a part without a partition could not be committed",
                do=f"set parts to {there} at most, or add partitions to {MARKERS_TOPIC} (never remove any)",
            )

    def _create_markers(self) -> int:
        new = NewTopic(MARKERS_TOPIC, MARKERS_PARTITIONS, -1, config={"cleanup.policy": "compact"})
        asked = self._admin.create_topics([new], request_timeout=self._deadline.left())
        try:
            asked[MARKERS_TOPIC].result(self._deadline.left())
        except KafkaException as raised:
            error = faults.error_of(raised)
            if error.name() != "TOPIC_ALREADY_EXISTS":
                raise self._error(error, f"creating topic {MARKERS_TOPIC}") from raised
        return self._wait_for(MARKERS_TOPIC, self._deadline) or MARKERS_PARTITIONS

    def _error(self, error: KafkaError, doing: str) -> SluicegateError:
        return faults.before_start(error, self._address, doing)
