"""A topic for one test, and an apply that is retried while its outcome is in doubt."""

from __future__ import annotations

import uuid

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from infra.local_services.endpoints import KafkaEndpoint
from sluicegate.errors import SinkUnavailable
from sluicegate.sinks.contract import PartDecision, Receipt
from sluicegate.sinks.kafka.bound_sink import BoundKafka
from tests.integration.kafka_crashing_writer import bind_sink, staged_rows
from tests.integration.kafka_reader import read_topic


class Topic:
    """A new topic with a new lineage."""

    def __init__(self, kafka: KafkaEndpoint, config: dict[str, str] | None = None) -> None:
        self.kafka, self.lineage = kafka, uuid.uuid4().hex
        self.name = f"rule13-{self.lineage}"
        kafka.create_topic(self.name, 1, config)

    def sink(self, **settings: object) -> BoundKafka:
        return bind_sink(self.kafka.bootstrap, self.name, self.lineage, **settings)

    def values(self) -> list[bytes | None]:
        return [record.value for record in read_topic(self.kafka.bootstrap, self.name)]

    def set_config(self, name: str, value: str) -> None:
        """Change a configuration entry of the topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        admin = self.kafka.admin()
        admin.incremental_alter_configs([resource])[resource].result(timeout=20)


def apply_until_done(sink: BoundKafka, decision: PartDecision, rows: list[bytes]) -> Receipt:
    """Apply as the coordinator does: with a new writer while the outcome is in doubt."""
    for _ in range(10):
        writer = None
        try:
            writer = sink.open(0)
            return writer.apply(decision, [staged_rows(rows)])
        except SinkUnavailable:
            continue
        finally:
            if writer is not None:
                writer.close()
    raise AssertionError("still in doubt after 10 tries")
