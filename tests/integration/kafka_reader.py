"""Reads the committed records of a topic with the library's reader."""

from __future__ import annotations

from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.reader import CommittedReader, Record

_STABLE_S = 30.0


def read_topic(bootstrap: str, topic: str, *, stable: bool = True) -> list[Record]:
    """Return all committed records by partition and offset.

    Args:
        bootstrap: the brokers.
        topic: its name.
        stable: first wait until no transaction is open.
    """
    with CommittedReader(Connection(bootstrap)) as reader:
        if stable:
            assert reader.await_stable(topic, _STABLE_S), f"a transaction stays open in {topic}"
        return sorted(reader.read(topic), key=lambda record: (record.partition, record.offset))
