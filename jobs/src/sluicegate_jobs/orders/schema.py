"""Parses orders in Spark: JSON lines with id, user, time and amount.

`expected` parses them in plain Python, for verification.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluicegate.spark.json_objects import parse_json

WINDOW, LATENESS = "5 seconds", "2 seconds"

_TEXTS = "id string, user string, time string, amount string"
"""Strings, because Spark would silently round an amount of three decimals to the decimal type."""

NAME = r"^[A-Za-z0-9_.@-]{1,64}\z"
TIME = r"^(19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,3})?Z\z"
AMOUNT = r"^-?[0-9]{1,10}([.][0-9]{1,2})?\z"


def read_orders(lines: DataFrame) -> DataFrame:
    """Return lines with the columns id, user, time, amount, and invalid: why it is not an order, or null."""
    row = lines.withColumn(
        "read", parse_json(lines.sparkSession, F.col("value").cast("binary"), _TEXTS)
    )
    read = row.withColumns(
        {
            "id": _matching("id", NAME),
            "user": _matching("user", NAME),
            "time": F.try_to_timestamp(_matching("time", TIME)),
            "amount": _matching("amount", AMOUNT).try_cast("decimal(12,2)"),
        }
    )
    return read.drop("read").withColumn("invalid", _invalid())


def _matching(name: str, pattern: str) -> Column:
    text = F.col(f"read.{name}")
    return F.when(text.rlike(pattern), text)


def _invalid() -> Column:
    reason = F.when(F.col("value").isNull(), "empty: the record has no value")
    for name, what in (
        ("id", "has no id of letters, digits and _.@-"),
        ("user", "has no user of letters, digits and _.@-"),
        ("time", "has no time such as 2026-01-07T12:00:00Z"),
        ("amount", "has no amount of at most two decimals"),
    ):
        reason = reason.when(F.col(name).isNull(), f"unparsed: not a JSON object, or it {what}")
    return reason
