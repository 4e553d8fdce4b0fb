"""Checks a topic and its brokers before anything is decided, and creates the markers topic.

`sluicegate.markers` is the only topic that a sink creates; the other topics belong to the user. Runs
on the driver.
"""

from __future__ import annotations

from confluent_kafka.admin import ResourceType

from sluicegate.errors import SettingsInvalid, TargetMissing, TransactionTimeoutInvalid
from sluicegate.sinks.kafka.admin import KafkaAdmin
from sluicegate.sinks.kafka.connection import (
    LOG,
    MARKERS_PARTITIONS,
    MARKERS_TOPIC,
    Connection,
    Deadline,
)
from sluicegate.sinks.kafka.topic import NO_LIMIT_MS, TopicLimits, transaction_timeout_ms

_TIMEOUT_S = 10.0
_DAY_MIN = 24 * 60
_LEAST_RETENTION_DAYS = 30
_MARKERS_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
"""The newest segment is not compacted, and is read whole after an expiry; Kafka's default is 1 GiB."""


class Preflight:
    """The checks of one topic, within one deadline for all of them."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._address, self._topic = connection.bootstrap, topic
        self._deadline = Deadline(_TIMEOUT_S)
        self._admin = KafkaAdmin(connection, self._deadline)

    def run(self, *, parts: int, apply_timeout_s: float, timed: bool = False) -> TopicLimits:
        """Check everything and return the limits of the topic; timed records carry their own time.

        Raises:
            SinkUnavailable, AccessDenied, TargetMissing, TransactionTimeoutInvalid, SettingsInvalid.
        """
        broker_id, cluster = self._admin.connect()
        description = self._admin.wait_for(self._topic)
        if description is None:
            raise TargetMissing(
                f"Kafka at {self._address}: topic {self._topic} does not exist",
                data="nothing was read or written; Sluicegate creates no topics but its own",
                do=f"kafka-topics.sh --bootstrap-server {self._address} --create --topic {self._topic} "
                "--partitions <n>",
            )
        topic = self._admin.config(ResourceType.TOPIC, self._topic)
        broker = self._admin.config(ResourceType.BROKER, broker_id)
        allowed_ms = int(broker["transaction.max.timeout.ms"])
        if transaction_timeout_ms(apply_timeout_s) > allowed_ms:
            raise TransactionTimeoutInvalid(
                f"Kafka at {self._address}: apply_timeout_s={apply_timeout_s:g} is above the broker's "
                f"transaction.max.timeout.ms={allowed_ms}, and a transaction is open while an epoch is applied",
                data="nothing was read or written",
                do=f"set apply-timeout-s to {allowed_ms / 1000:g} at most, or raise the broker's "
                "transaction.max.timeout.ms",
            )
        retention_min = int(broker["offsets.retention.minutes"])
        self._check_parts(parts)
        self._check_durability(retention_min)
        if timed:
            self._check_age(int(topic.get("message.timestamp.before.max.ms") or NO_LIMIT_MS))
        return TopicLimits(
            partitions=len(description.partitions),
            record_limit_bytes=int(topic["max.message.bytes"]),
            keys_required="compact" in topic["cleanup.policy"],
            offsets_retention_min=retention_min,
            timestamp_ahead_ms=int(topic.get("message.timestamp.after.max.ms") or NO_LIMIT_MS),
            cluster=cluster,
        )

    def _check_durability(self, retention_min: int) -> None:
        """Warn if markers expire soon and somebody has created their topic without compaction."""
        days = retention_min / _DAY_MIN
        policy = self._admin.config(ResourceType.TOPIC, MARKERS_TOPIC)["cleanup.policy"]
        if "delete" in policy and days < _LEAST_RETENTION_DAYS:
            LOG.warning(
                "Kafka at %s: the cleanup.policy of topic %s is %s, and offsets.retention.minutes is "
                "%d, %.1f days. If the job is stopped or stuck for longer with an epoch that is "
                "decided and not applied everywhere, it is lost whether %s has the epoch, and the job "
                "ends with MarkerMismatch. Set cleanup.policy=compact on %s",
                self._address,
                MARKERS_TOPIC,
                policy,
                retention_min,
                days,
                self._topic,
                MARKERS_TOPIC,
            )

    def _check_age(self, oldest_ms: int) -> None:
        """Refuse a topic that rejects old records: a decided epoch only grows older."""
        if oldest_ms < NO_LIMIT_MS:
            raise SettingsInvalid(
                f"topic {self._topic} rejects records older than {oldest_ms} ms "
                "(message.timestamp.before.max.ms), and the sink sets the time of records",
                data="nothing was read or written; the topic would reject an epoch that is applied late, "
                "at every attempt",
                do=f"remove message.timestamp.before.max.ms from {self._topic}, or remove timestamp=",
            )

    def _check_parts(self, parts: int) -> None:
        """Check that every part has a partition that stores its marker (rule 13)."""
        self._admin.ensure(MARKERS_TOPIC, MARKERS_PARTITIONS, _MARKERS_CONFIG)
        description = self._admin.wait_for(MARKERS_TOPIC, self._deadline.left())
        partitions = len(description.partitions) if description else MARKERS_PARTITIONS
        if parts > partitions:
            raise SettingsInvalid(
                f"topic {self._topic}: parts={parts}, but topic {MARKERS_TOPIC} has {partitions} partitions",
                data="nothing was read or written; a part without a partition could not be committed",
                do=f"set parts to {partitions} at most, or add partitions to {MARKERS_TOPIC}",
            )
