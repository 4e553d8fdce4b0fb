"""The sinks of a workload: creates them, reads them back, and removes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from infra.local_services import KafkaEndpoint, MySQLEndpoint
from sluicegate_jobs.ip_count.job import TABLE_COLUMNS as IP_COUNT_COLUMNS
from sluicegate_jobs.orders.stream import TABLE_COLUMNS as ORDERS_COLUMNS
from sluicegate_jobs.targets import table_ddl
from sluicegate_jobs.word_count.job import TABLE_COLUMNS as WORD_COUNT_COLUMNS
from tests.bench import readback
from tests.bench.inputs import WORDS_PER_LINE
from tests.bench.order import Order
from tests.bench.plan import (
    ADD,
    COMMON_QUERY,
    IP_COUNT,
    KEY_COUNT,
    MYSQL_LATENCY,
    MYSQL_ONLY,
    NOOP,
    ORDERS,
    OTHER_ENGINES,
    SERIAL,
    SLUICEGATE,
    SPARK,
    UPSERT,
    WORD_COUNT,
)
from tests.bench.readback import Content

_ROWS: Final = "id BIGINT NOT NULL{}, amount BIGINT NOT NULL, quantity BIGINT NOT NULL"

COLUMNS: Final[Mapping[str, str]] = {
    IP_COUNT: IP_COUNT_COLUMNS,
    WORD_COUNT: WORD_COUNT_COLUMNS,
    ORDERS: ORDERS_COLUMNS,
    UPSERT: _ROWS.format(" PRIMARY KEY"),
    ADD: _ROWS.format(" PRIMARY KEY"),
    # rows become visible in the order of `seq`, because one transaction writes at a time
    MYSQL_LATENCY: (
        "record VARCHAR(16) NOT NULL PRIMARY KEY, due BIGINT NOT NULL, "
        "seq BIGINT NOT NULL AUTO_INCREMENT, KEY (seq)"
    ),
}
"""The columns of the table of each kind that has one."""

_STAGING: Final[Mapping[str, str]] = {
    UPSERT: _ROWS.format(""),
    ADD: _ROWS.format(""),
    MYSQL_LATENCY: "record VARCHAR(16) NOT NULL, due BIGINT NOT NULL",
}
"""The columns of the table that Spark's JDBC writer fills, without keys."""

_DEAD_LETTERS: Final = (IP_COUNT, WORD_COUNT, ORDERS)

_TABLE_ROWS: Final[Mapping[str, Sequence[str]]] = {
    WORD_COUNT: ("word", "`count`"),
    ORDERS: (
        "DATE_FORMAT(window_start, '%Y-%m-%d %H:%i:%s')",
        "`user`",
        "orders",
        "largest",
        "smallest",
    ),
    UPSERT: ("id", "amount", "quantity"),
    ADD: ("id", "amount", "quantity"),
}


class Servers(Protocol):
    """The servers of a workload."""

    @property
    def kafka(self) -> KafkaEndpoint:
        """The address of Kafka."""
        ...

    @property
    def mysql(self) -> MySQLEndpoint:
        """The address of MySQL."""
        ...


def create(order: Order, services: Servers, partitions: int) -> None:
    """Create the topics and tables of an order."""
    if order.kind not in MYSQL_ONLY:
        appended = {"message.timestamp.type": "LogAppendTime"}
        services.kafka.create_topic(order.sink, partitions, appended)
    if order.kind in _DEAD_LETTERS:
        services.kafka.create_topic(order.dead_letters, partitions)
    for table, columns in _tables(order).items():
        _execute(services.mysql, table_ddl(table, columns))


def drop(order: Order, services: Servers) -> None:
    """Delete the topics and tables of an order, also on servers that are not ours."""
    if order.kind not in MYSQL_ONLY:
        services.kafka.delete_topic(order.sink)
    if order.kind in _DEAD_LETTERS:
        services.kafka.delete_topic(order.dead_letters)
    for table in _tables(order):
        _execute(services.mysql, f"DROP TABLE `{table}`")


def _tables(order: Order) -> dict[str, str]:
    tables = {order.table: COLUMNS[order.kind]} if order.kind in COLUMNS else {}
    if order.kind in _STAGING:
        tables[order.staging_table] = _STAGING[order.kind]
    return tables


def read_back(order: Order, expected: Content, mysql: MySQLEndpoint) -> tuple[str, list[int]]:
    """Return what is wrong with the sinks, empty if nothing is, and when the records were appended."""
    appends: list[int] = []
    problem = ""
    if writes_topic(order):
        problem = _topic(order, appends).differs("the topic", expected)
    if not problem and writes_table(order):
        problem = _table(order, mysql).differs("the table", expected)
    if not problem and order.kind in _DEAD_LETTERS and order.contender in (SLUICEGATE, SERIAL):
        dead_letters = readback.values_in(order.bootstrap, order.dead_letters)
        problem = dead_letters.differs("the dead-letter topic", Content(0, 0))
    return problem, appends


def writes_topic(order: Order) -> bool:
    """Return whether the contender writes a topic; the packaged word_count and NOOP do not."""
    packaged = order.contender in (SLUICEGATE, SERIAL)
    nothing = order.contender == NOOP or (order.kind == WORD_COUNT and packaged)
    return order.kind not in MYSQL_ONLY and not nothing


def writes_table(order: Order) -> bool:
    """Return whether the contender writes a table."""
    no_table = order.contender in (SPARK, NOOP, *OTHER_ENGINES)
    no_table = no_table or (order.kind == WORD_COUNT and order.contender in COMMON_QUERY)
    return order.kind in COLUMNS and not no_table


def _topic(order: Order, appends: list[int]) -> Content:
    if order.kind == IP_COUNT:
        return readback.counts_in(order.bootstrap, order.sink, appends)
    if order.kind == ORDERS:
        return readback.orders_in(order.bootstrap, order.sink, appends)
    if order.kind == WORD_COUNT:
        fields = ("word", "count")
        return readback.running_counts_in(
            order.bootstrap, order.sink, fields, WORDS_PER_LINE, appends
        )
    if order.kind == KEY_COUNT:
        return readback.running_counts_in(order.bootstrap, order.sink, ("id", "count"), 1, appends)
    return readback.values_in(order.bootstrap, order.sink, appends)


def _table(order: Order, mysql: MySQLEndpoint) -> Content:
    if order.kind == IP_COUNT:
        return readback.counts_in_table(mysql, order.table)
    return readback.rows_in_table(mysql, order.table, *_TABLE_ROWS[order.kind])


def _execute(mysql: MySQLEndpoint, statement: str) -> None:
    connection = mysql.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
    finally:
        connection.close()
