"""Creates topics and tables of the packaged jobs where they are missing, for a first run.

A job never does it by itself: a missing target is an error at its start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, NewTopic

from sluicegate.sinks.mysql.session import Address, connect

_TIMEOUT_S = 30.0


def create_topics(bootstrap: str, topics: Sequence[str], *, partitions: int) -> list[str]:
    """Create the topics that are missing; return their names."""
    admin = AdminClient({"bootstrap.servers": bootstrap or os.environ.get("SLUICEGATE_KAFKA", "")})
    there = admin.list_topics(timeout=_TIMEOUT_S).topics
    missing = [topic for topic in topics if topic not in there]
    if missing:
        for made in admin.create_topics(
            [NewTopic(topic, partitions) for topic in missing]
        ).values():
            made.result(_TIMEOUT_S)
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
