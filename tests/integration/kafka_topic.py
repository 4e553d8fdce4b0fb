"""A topic for one test, and an apply that is repeated while in doubt. Called by tests only."""

from __future__ import annotations

import uuid

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from infra.embedded.endpoints import KafkaEndpoint
from sluicegate.protocol.errors import SinkUnavailable
from sluicegate.sinks.contract import PartDecision, Receipt
from sluicegate.sinks.kafka.bound import BoundKafka

from .kafka_reader import read_topic
from .kafka_victim import bound, staged


class Topic:
    """A new topic, a new lineage and what is in it."""

    def __init__(self, kafka: KafkaEndpoint, config: dict[str, str] | None = None) -> None:
        self.kafka, self.lineage = kafka, uuid.uuid4().hex
        self.name = f"rule13-{self.lineage}"
        kafka.create_topic(self.name, 1, config)

    def sink(self, **more: object) -> BoundKafka:
        return bound(self.kafka.bootstrap, self.name, self.lineage, **more)

    def values(self) -> list[bytes | None]:
        return [record.value for record in read_topic(self.kafka.bootstrap, self.name)]

    def set(self, name: str, value: str) -> None:
        """Change the topic behind the sink's back."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        admin = self.kafka.admin()
        admin.incremental_alter_configs([resource])[resource].result(timeout=20)


def apply_until_done(sink: BoundKafka, decision: PartDecision, rows: list[bytes]) -> Receipt:
    """Apply as the coordinator does: with a new writer for as long as it is in doubt."""
    for _ in range(10):
        writer = None
        try:
            writer = sink.open(0)
            return writer.apply(decision, [staged(rows)])
        except SinkUnavailable:
            continue
        finally:
            if writer is not None:
                writer.close()
    raise AssertionError("still in doubt after 10 tries")
