"""The Kafka sink: each part of an epoch is one Kafka transaction with its marker (rule 13)."""

from sluicegate.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
