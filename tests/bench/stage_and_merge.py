"""Spark's usual way to upsert into MySQL: its JDBC writer fills a staging table, one statement merges it.

The writer is given what it needs to be fast: bulk inserts of the driver, 10,000 rows each, by as many
connections as there are partitions; the staging table has no keys. Repeated epochs repeat the merge, so
numbers that are added are then added twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from pyspark.sql import DataFrame

from infra.local_services import MySQLEndpoint
from infra.toolchain import maven
from tests.bench.order import Order
from tests.bench.plan import ADD, MYSQL_LATENCY

BATCH_ROWS: Final = 10_000
DRIVER: Final = "org.mariadb.jdbc.Driver"

_COLUMNS: Final = {MYSQL_LATENCY: ("record", "due")}
_ROW: Final = ("id", "amount", "quantity")


def driver_jar() -> str:
    """Return the path of the JDBC driver, which `child` has fetched."""
    (jar,) = maven.folder("jdbc").glob("*.jar")
    return str(jar)


def url(mysql: MySQLEndpoint) -> str:
    """Return the JDBC URL. With jdbc:mysql Spark quotes names as MySQL does, with jdbc:mariadb it does not."""
    options = {"permitMysqlScheme": "true", "useBulkStmtsForInserts": "true"}
    return f"jdbc:mysql://{mysql.host}:{mysql.port}/{mysql.database}?{urlencode(options)}"


def merge_statement(order: Order) -> str:
    """Return the statement that upserts the staged rows: a transaction."""
    key, *others = _COLUMNS.get(order.kind, _ROW)
    columns = ", ".join((key, *others))
    table = order.table
    updates = ", ".join(
        f"{name} = `{table}`.{name} + VALUES({name})"
        if order.kind == ADD
        else f"{name} = VALUES({name})"
        for name in others
    )
    return (
        f"INSERT INTO `{table}` ({columns}) SELECT {columns} FROM `{order.staging_table}` "
        f"ON DUPLICATE KEY UPDATE {updates}"
    )


def writer(order: Order, mysql: MySQLEndpoint | None) -> Callable[[DataFrame, int], None]:
    """Return the function for foreachBatch."""
    if mysql is None:
        raise ValueError(f"{order.kind} needs a MySQL")
    options = {
        "url": url(mysql),
        "driver": DRIVER,
        "user": mysql.user,
        "password": mysql.password,
        "dbtable": order.staging_table,
        "truncate": "true",
        "batchsize": str(BATCH_ROWS),
    }
    connection = mysql.connect()

    def stage_and_merge(batch: DataFrame, _epoch: int) -> None:
        batch.write.format("jdbc").mode("overwrite").options(**options).save()
        with connection.cursor() as cursor:
            cursor.execute(merge_statement(order))
        connection.commit()

    return stage_and_merge
