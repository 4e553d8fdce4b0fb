"""The Kafka sink: each part of an epoch is one Kafka transaction with its marker (rule 13).

Not here: when an epoch is decided, and who keeps writers between epochs. Inside, arrows go one
way: `sink` -> `preflight`, `expressions`, `bound` -> `writer` -> `producers`, `committed`, `records`
-> `clients` -> `faults`.
"""

from sluicegate.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
