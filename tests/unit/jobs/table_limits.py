"""Builds the limits of a table's columns."""

from __future__ import annotations

from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate_jobs.verification.limits import TableLimits


def table_limits(*columns: Column) -> TableLimits:
    return TableLimits({column.name: column for column in columns}, 16 << 20)


def varchar(name: str, characters: int, charset: str = "utf8mb4") -> Column:
    declared = f"varchar({characters})"
    return Column(
        name, declared, Family.TEXT, "varchar", nullable=False, chars=characters, charset=charset
    )


def bigint(name: str) -> Column:
    return Column(name, "bigint", Family.INTEGER, "bigint", nullable=False)
