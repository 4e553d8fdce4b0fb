"""Creates missing topics and tables, for `sluicegate targets` of every packaged job.

A job never creates them by itself: a missing target is an error at its start.
"""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.sinks.kafka.admin import KafkaAdmin
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.mysql.connection import Address, connect

_TIMEOUT_S = 30.0


def create_topics(bootstrap: str, topics: Sequence[str], *, partitions: int) -> list[str]:
    """Create the topics that are missing; return their names; raises as `KafkaAdmin`."""
    admin = KafkaAdmin(Connection.of(bootstrap))
    return [f"topic {topic}" for topic in topics if admin.ensure(topic, partitions)]


def create_table(url: str, table: str, ddl: str) -> list[str]:
    """Create a table if it is missing; return its name if it was created."""
    connection = connect(Address.parse(url or None), timeout_s=_TIMEOUT_S)
    try:
        with connection.cursor() as cursor:
            if cursor.execute("SHOW TABLES LIKE %s", (table,)):
                return []
            cursor.execute(ddl.format(table=f"`{table}`"))
    finally:
        connection.close()
    return [f"table {table}"]
