"""Creates missing topics and tables, for `sluicegate targets` of every packaged job.

A job never creates them by itself: a missing target is an error at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from sluicegate.sinks.kafka.admin import KafkaAdmin
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.mysql.connection import Address, connect

_TIMEOUT_S = 30.0


def create_topics(bootstrap: str, topics: Sequence[str], *, partitions: int = 4) -> list[str]:
    """Create the topics that are missing; return their names; raises as `KafkaAdmin`."""
    admin = KafkaAdmin(Connection.of(bootstrap))
    return [f"topic {topic}" for topic in topics if admin.ensure(topic, partitions)]


def table_ddl(table: str, columns: str) -> str:
    """Return the statement that creates a table unless it exists.

    The collation is binary: with others, `Cafe` and `café` are one key in MySQL and two words in Spark.
    """
    form = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
    return f"CREATE TABLE IF NOT EXISTS `{table}` ({columns}) {form}"


def create_table(url: str, table: str, columns: str) -> list[str]:
    """Create a table if it is missing; return its name if it was created."""
    with (
        closing(connect(Address.parse(url), timeout_s=_TIMEOUT_S)) as connection,
        connection.cursor() as cursor,
    ):
        # not SHOW TABLES LIKE: `_` in a name would match any character
        cursor.execute(
            "SELECT 1 FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_name = %s",
            (table,),
        )
        if cursor.fetchone():
            return []
        cursor.execute(table_ddl(table, columns))
    return [f"table {table}"]
