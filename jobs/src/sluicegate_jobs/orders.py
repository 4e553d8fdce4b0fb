"""Orders as JSON lines: id, user, time, amount. How the order jobs read them, in Spark.

Not here: reading them in plain Python, for the checks (`orders_answer`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluicegate_jobs.kafka_source import json_row

_TEXTS = "id string, user string, time string, amount string"
"""Read as they are written: as a decimal, Spark would round an amount of three digits in silence."""

NAME = r"^[A-Za-z0-9_.@-]{1,64}$"
TIME = r"^(19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,3})?Z$"
AMOUNT = r"^-?[0-9]{1,10}([.][0-9]{1,2})?$"


def read_orders(lines: DataFrame) -> DataFrame:
    """Return lines with the columns id, user, time, amount, and broken: why it is no order, or null.

    Args:
        lines: with a column `value`, text or bytes.
    """
    row = lines.withColumn("read", json_row(F.col("value").cast("string"), _TEXTS))
    read = row.withColumns(
        {
            "id": _fitting("id", NAME),
            "user": _fitting("user", NAME),
            "time": F.try_to_timestamp(_fitting("time", TIME)),
            "amount": _fitting("amount", AMOUNT).try_cast("decimal(12,2)"),
        }
    )
    return read.drop("read").withColumn("broken", _broken())


def _fitting(name: str, pattern: str) -> Column:
    text = F.col(f"read.{name}")
    return F.when(text.rlike(pattern), text)


def _broken() -> Column:
    why = F.when(F.col("value").isNull(), "empty: the record has no value")
    for name, what in (
        ("id", "has no id of letters, digits and _.@-"),
        ("user", "has no user of letters, digits and _.@-"),
        ("time", "has no time such as 2026-01-07T12:00:00Z"),
        ("amount", "has no amount of at most two decimals"),
    ):
        why = why.when(F.col(name).isNull(), f"unparsed: not a JSON object, or it {what}")
    return why
