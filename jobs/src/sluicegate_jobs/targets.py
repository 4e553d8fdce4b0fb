"""Creates topics and tables of the packaged jobs where they are missing, for a first run.

A job never does it by itself: a missing target is an error at its start.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sluicegate.sinks.kafka.faults import error_of
from sluicegate.sinks.mysql.session import Address, connect
from sluicegate_jobs.kafka_admin import asked

_TIMEOUT_S = 30.0


def create_topics(bootstrap: str, topics: Sequence[str], *, partitions: int) -> list[str]:
    """Create the topics that are missing; return their names; raises as `asked` does."""
    return asked(bootstrap, "creating topics", lambda admin: _create(admin, topics, partitions))


def _create(admin: AdminClient, topics: Sequence[str], partitions: int) -> list[str]:
    there = admin.list_topics(timeout=_TIMEOUT_S).topics
    missing = [topic for topic in topics if topic not in there]
    if missing:
        wanted = [NewTopic(topic, partitions) for topic in missing]
        for made in admin.create_topics(wanted).values():
            try:
                made.result(_TIMEOUT_S)
            except KafkaException as error:
                # ours, when the answer to the first request was slow or lost; or somebody else's
                if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    return [f"topic {topic}" for topic in missing]


def create_table(url: str, table: str, ddl: str) -> list[str]:
    """Create a table if it is missing; return its name if it was."""
    connection = connect(Address.parse(url or None), timeout_s=_TIMEOUT_S)
    try:
        with connection.cursor() as cursor:
            if cursor.execute("SHOW TABLES LIKE %s", (table,)):
                return []
            cursor.execute(ddl.format(table=f"`{table}`"))
    finally:
        connection.close()
    return [f"table {table}"]
