"""Commits how far the Kafka sources are applied to a consumer group, for tools that show its lag.

Nothing here is ever read: a job starts from its checkpoint (docs/decisions/0073). A commit is made in
the background, with the newest offsets that every sink has, and a refused one is a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sluicegate.errors import SettingsInvalid
from sluicegate.metrics import DriverMetrics
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.schema import NOTHING_STARTED
from sluicegate.sinks.kafka.connection import is_markers_group
from sluicegate.spark.query_execution import JavaObject, KafkaSource

log = logging.getLogger("sluicegate.offsets")

Partition = tuple[str, int]
"""Topic and number."""

_PAUSE_S = 5.0
"""Between two commits, as `auto.commit.interval.ms` of a consumer."""
_RETRY_S = 30.0
_REPEAT_S = 3600.0
"""Offsets that do not change are committed again: brokers delete those of an inactive group."""
_ANSWER_MS = 10_000
_CLOSE_S = 2.0

_REMEDIES: Mapping[str, str] = {
    "GroupAuthorizationException": "grant the source's user Read on the group",
    "TopicAuthorizationException": "grant the source's user Read on the source's topics",
    "UnknownMemberIdException": "stop the consumers that have joined the group, or set source-group "
    "to one that nothing else uses",
    "UnknownTopicOrPartitionException": "nothing if the topic was deleted; otherwise check its name",
    "InvalidGroupIdException": "correct source-group",
}
"""What to do about an error of Kafka, by the name of its class."""
_OTHER_REMEDY = "nothing if the brokers come back: the newest offsets are committed then"


def source_group(job: str, settings: EpochSettings) -> str:
    """Return the consumer group for the offsets of a job's sources; empty: none is wanted.

    Raises:
        SettingsInvalid: it could be a group of markers, whose offsets are not to be touched.
    """
    if not settings.commit_source_offsets:
        return ""
    group = settings.source_group or f"sluicegate.{job}"
    if is_markers_group(group):
        raise SettingsInvalid(
            f"the consumer group {group} for offsets of the sources has a name of sinks' markers",
            data=NOTHING_STARTED,
            do="set source-group to another name, or commit-source-offsets to false",
        )
    return group


class CommitFailed(Exception):
    """Brokers refused offsets, or did not answer; `reason` is the name of Kafka's error."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        super().__init__(text)


class GroupClient(Protocol):
    """Commits offsets to one consumer group."""

    def commit(self, source: KafkaSource, offsets: Mapping[Partition, int]) -> None:
        """Commit to the brokers of a source; raises CommitFailed."""

    def close(self) -> None:
        """Close the connections."""


class SourceOffsets:
    """The consumer group of a job's sources, and the thread that commits to it.

    Args:
        group: its name, for warnings.
        client: commits to it.
        metrics: counts failed commits.
        pause_s: shortest time between two commits, in seconds.
        retry_s: the same after a failed one.
        repeat_s: time after which offsets that did not change are committed again.
    """

    def __init__(
        self,
        group: str,
        client: GroupClient,
        metrics: DriverMetrics,
        *,
        pause_s: float = _PAUSE_S,
        retry_s: float = _RETRY_S,
        repeat_s: float = _REPEAT_S,
    ) -> None:
        self._group, self._client, self._metrics = group, client, metrics
        self._pause_s, self._retry_s, self._repeat_s = pause_s, retry_s, repeat_s
        self._lock = threading.Lock()
        self._newest: dict[int, KafkaSource] = {}
        self._news, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._committed: dict[int, dict[Partition, int]] = {}
        self._warned: set[str] = set()

    @classmethod
    def of(cls, spark: SparkSession, group: str, metrics: DriverMetrics) -> SourceOffsets:
        """Return the group of a query's sources; nothing is connected before the first epoch."""
        return cls(group, JavaGroupClient(spark, group), metrics)

    def applied(self, sources: Iterable[KafkaSource]) -> None:
        """Note how far every sink has each source. Never waits for a broker."""
        newest = {source.number: source for source in sources}
        if not newest or self._closing.is_set():
            return
        with self._lock:
            self._newest |= newest
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="source-offsets", daemon=True
                )
                self._thread.start()
        self._news.set()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Commit the last offsets; give up after a time limit in seconds."""
        self._closing.set()
        self._news.set()
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._failed("NoAnswer", f"no answer within {timeout_s:g} s at the end of the job")

    def _run(self) -> None:
        while True:
            repeat = not self._news.wait(self._repeat_s)
            self._news.clear()
            closing = self._closing.is_set()  # before the commit, which must have the last offsets
            if repeat:
                self._committed.clear()
            done = self._commit()
            if closing:
                break
            if not done:
                self._news.set()
            self._closing.wait(self._pause_s if done else self._retry_s)
        self._client.close()

    def _commit(self) -> bool:
        """Commit the offsets that have changed; return whether all of them are committed."""
        with self._lock:
            newest = list(self._newest.values())
        done = True
        for source in newest:
            known = self._committed.setdefault(source.number, {})
            offsets = {
                (topic, int(partition)): offset
                for topic, partitions in source.end.items()
                for partition, offset in partitions.items()
                if known.get((topic, int(partition))) != offset
            }
            if not offsets:
                continue
            try:
                self._client.commit(source, offsets)
            except CommitFailed as failed:
                self._failed(failed.reason, str(failed))
                done = False
            except Exception as error:  # noqa: BLE001 - a job never fails for a number in a tool
                self._failed(type(error).__name__, str(error))
                done = False
            else:
                known |= offsets
        return done

    def _failed(self, reason: str, text: str) -> None:
        """Count a failed commit; warn of the first one for each reason."""
        self._metrics.source_offsets_failed(reason)
        if reason in self._warned:
            return
        self._warned.add(reason)
        log.warning(
            "offsets of the sources are not committed to the group %s (%s): %s\n"
            "  data: not affected, the job reads from its checkpoint and never from the group; tools "
            "show an old lag of it, or none\n"
            "  do: %s; commit-source-offsets=false ends the attempts",
            self._group,
            reason,
            text,
            _REMEDIES.get(reason, _OTHER_REMEDY),
        )


class JavaGroupClient:
    """Kafka's admin clients in Spark's JVM, one for each source, with the options of the source.

    librdkafka's client was rejected: it would need the options of a job's own source, which are those
    of the Java client, in its own terms, and has none for a key store or another login module.
    """

    def __init__(self, spark: SparkSession, group: str) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no Python API for Kafka's client
        self._group = group
        self._admins: dict[int, JavaObject] = {}

    def commit(self, source: KafkaSource, offsets: Mapping[Partition, int]) -> None:
        """Commit to the brokers of a source; raises CommitFailed."""
        entries = self._jvm.java.util.HashMap()
        new_partition, new_offset = self._classes
        for (topic, partition), offset in offsets.items():
            entries.put(new_partition(topic, partition), new_offset(offset))
        options = self._jvm.org.apache.kafka.clients.admin.AlterConsumerGroupOffsetsOptions()
        try:
            answers = self._admin(source).alterConsumerGroupOffsets(
                self._group, entries, options.timeoutMs(_ANSWER_MS)
            )
            answers.all().get()
        except Py4JJavaError as raised:
            outer = raised.java_exception
            cause = outer.getCause() or outer
            raise CommitFailed(cause.getClass().getSimpleName(), str(cause.getMessage())) from None

    def close(self) -> None:
        """Close the clients without waiting for what they do."""
        for admin in self._admins.values():
            admin.close(self._jvm.java.time.Duration.ZERO)

    @cached_property
    def _classes(self) -> tuple[Any, Any]:
        """Kafka's classes of a partition and an offset: py4j asks the JVM for each part of a name."""
        kafka = self._jvm.org.apache.kafka
        return kafka.common.TopicPartition, kafka.clients.consumer.OffsetAndMetadata

    def _admin(self, source: KafkaSource) -> JavaObject:
        if source.number not in self._admins:
            new_admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create
            options = source.stream.kafkaOffsetReader().driverKafkaParams()
            self._admins[source.number] = new_admin(options)
        return self._admins[source.number]
