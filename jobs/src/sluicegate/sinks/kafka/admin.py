"""Creates and describes topics, and explains failures; the only module that does so."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from sluicegate.sinks.kafka import errors
from sluicegate.sinks.kafka.connection import MARKERS_TOPIC, RDKAFKA_LOG, Connection, Deadline

_ANSWER_S = 10.0
_CONNECT_SLICE_S = 0.5
_PAUSE_S = 0.05
_METADATA_LAG_S = 2.0
"""Brokers learn of a new topic a little late."""
_TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's own errors have no other name


class KafkaAdmin:
    """An admin client of one cluster.

    Every method raises AccessDenied if the brokers refuse the user (to the caller a wrong password
    looks like silence) and SinkUnavailable if they do not answer.

    Args:
        connection: the brokers.
        deadline: for all calls together; default: 10 s for each call.
    """

    def __init__(self, connection: Connection, deadline: Deadline | None = None) -> None:
        self._address, self._deadline = connection.bootstrap, deadline
        self._errors: list[KafkaError] = []
        settings: dict[str, Any] = {**connection.settings(), "error_cb": self._errors.append}
        self._admin = AdminClient(settings, logger=RDKAFKA_LOG)

    def connect(self) -> tuple[str, str]:
        """Wait for a broker; return its id and that of its cluster, empty if it has none.

        Retries in short slices, so that a refused login, which only `error_cb` reports, ends the
        wait at once.
        """
        deadline = self._deadline or Deadline(_ANSWER_S)
        while True:
            try:
                metadata = self._admin.list_topics(
                    MARKERS_TOPIC, timeout=deadline.left(_CONNECT_SLICE_S)
                )
                # its annotation is wrong: None if the broker does not tell it
                cluster = metadata.cluster_id or ""  # type: ignore[redundant-expr]
                return str(min(metadata.brokers)), cluster
            except KafkaException as raised:
                self._admin.poll(0)
                denied = self._denial()
                if denied or deadline.passed():
                    # The first error is the cause: later ones only say that all brokers are down.
                    cause = denied or next(iter(self._errors), errors.error_of(raised))
                    raise errors.startup_error(cause, self._address, "connecting") from raised

    def topics(self) -> dict[str, set[int]]:
        """Return the partitions of every topic."""
        with self._translated_errors("listing topics"):
            metadata = self._admin.list_topics(timeout=self._left())
        return {name: set(topic.partitions) for name, topic in metadata.topics.items()}

    def describe(self, topic: str) -> TopicDescription | None:
        """Return a topic's description, None if it does not exist. Never creates it."""
        with self._translated_errors(f"describing topic {topic}"):
            topics = TopicCollection([topic])
            futures = self._admin.describe_topics(topics, request_timeout=self._left())
            try:
                description: TopicDescription = futures[topic].result(self._left())
            except KafkaException as raised:
                if errors.error_of(raised).name() == "UNKNOWN_TOPIC_OR_PART":
                    return None
                raise
            return description

    def wait_for(self, topic: str, timeout_s: float = _METADATA_LAG_S) -> TopicDescription | None:
        """Return a topic's description once the broker knows it, None if it never does."""
        patience = Deadline(timeout_s)
        while (description := self.describe(topic)) is None and not patience.passed():
            time.sleep(_PAUSE_S)
        return description

    def ensure(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> bool:
        """Create a topic with the broker's default replication if it is missing; return whether."""
        if self.describe(topic) is not None:
            return False
        new = NewTopic(topic, partitions, config=dict(config or {}))
        with self._translated_errors(f"creating topic {topic}"):
            futures = self._admin.create_topics([new], request_timeout=self._left())
            try:
                futures[topic].result(self._left())
            except KafkaException as raised:
                # By somebody else, or by this request if its first answer was late or lost.
                if errors.error_of(raised).name() != "TOPIC_ALREADY_EXISTS":
                    raise
        return True

    def config(self, kind: ResourceType, name: str) -> dict[str, str]:
        """Return the settings of a topic or broker."""
        resource = ConfigResource(kind, name)
        patience = self._deadline or Deadline(_ANSWER_S)
        with self._translated_errors(f"reading settings of {kind.name.lower()} {name}"):
            while True:
                futures = self._admin.describe_configs([resource], request_timeout=self._left())
                try:
                    entries: dict[str, Any] = futures[resource].result(self._left())
                    return {key: entry.value or "" for key, entry in entries.items()}
                except KafkaException as raised:
                    # Not every broker knows a new topic yet.
                    unknown = errors.error_of(raised).name() == "UNKNOWN_TOPIC_OR_PART"
                    if not unknown or patience.passed():
                        raise
                    time.sleep(_PAUSE_S)

    @contextmanager
    def _translated_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (KafkaException, TimeoutError) as raised:
            self._admin.poll(0)
            error = errors.error_of(raised) if isinstance(raised, KafkaException) else _TIMED_OUT
            raise errors.startup_error(self._denial() or error, self._address, doing) from raised

    def _denial(self) -> KafkaError | None:
        return next((error for error in self._errors if errors.is_denial(error.name())), None)

    def _left(self) -> float:
        return self._deadline.left() if self._deadline else _ANSWER_S
