"""Translates a sink's key, value and headers into Spark SQL of the staged columns. Pure.

Spark evaluates them in the JVM.
"""

from __future__ import annotations

import re

import pyarrow as pa

from sluicegate.errors import SchemaMismatch
from sluicegate.sinks.contract import quoted

WHOLE_ROW = "json"
NO_KEY = "cast(null as binary)"

INVALID_TIME = -(2**63)
"""The time of a row whose `timestamp` is neither null nor a time."""

_INVALID_TIME_SQL = "(-9223372036854775807L - 1L)"

_IDENTIFIER = re.compile(r"`(?:[^`]|``)+`|[A-Za-z_]\w*")

# Not cast(x as binary): it refuses numbers in ANSI mode. concat of one value gives binary for
# binary and a string for any other atomic type; the expression's type is not known here.
_BINARY = "cast(concat({}) as binary)"
_HEADER = "struct(cast(header.key as string) as key, cast(header.value as binary) as value)"
_HEADERS = f"transform({{}}, header -> {_HEADER})"


class RowExpressions:
    """Translates the sink's key, value, headers and partition for rows of one schema."""

    def __init__(self, rows: pa.Schema, topic: str) -> None:
        self._rows, self._topic = rows, topic
        # Spark resolves names case-insensitively by default.
        self._columns = {field.name.lower(): field for field in rows}

    def binary(self, text: str, role: str) -> str:
        """Return the expression of a key: a column (nested types as JSON) or any SQL."""
        sql, kind = self._resolve(text, role)
        if kind is not None and pa.types.is_binary(kind):
            return sql  # concat would copy each value
        nested = kind is not None and pa.types.is_nested(kind)
        return f"cast({_json(sql)} as binary)" if nested else _BINARY.format(sql)

    def value(self, text: str) -> str:
        """Return the expression of a value: the whole row as JSON, a column or any SQL."""
        if text != WHOLE_ROW:
            return self.binary(text, "value")
        row = f"struct({', '.join(quoted(name) for name in self._rows.names)})"
        return f"cast({_json(row)} as binary)"

    def headers(self, text: str) -> str:
        """Return the expression of headers: array of struct (key, value), or a map column."""
        sql, kind = self._resolve(text, "headers")
        if kind is None:
            return _HEADERS.format(sql)
        if pa.types.is_map(kind):
            return _HEADERS.format(f"map_entries({sql})")
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        item = kind.value_type if is_list else pa.null()
        if not pa.types.is_struct(item) or {f.name for f in item} != {"key", "value"}:
            raise self._mismatch(
                f"headers={text!r} has type {kind}",
                "give an array of struct<key: string, value: binary>, or a map",
            )
        return _HEADERS.format(sql)

    def partition(self, text: str) -> str:
        """Return the expression of a partition number; what is none becomes -1, which no topic has."""
        sql = self._resolve(text, "partition")[0]
        # a cast that fails would end the epoch, at each start again; null: the key chooses
        return f"if(({sql}) is null, null, coalesce(try_cast({sql} as bigint), -1L))"

    def timestamp(self, text: str) -> str:
        """Return the expression of a record's time in ms since 1970; null: the time of writing.

        What is no time becomes INVALID_TIME, which `BoundKafka.refusals` refuses.
        """
        sql, kind = self._resolve(text, "timestamp")
        instant = f"unix_millis(try_cast({sql} as timestamp))"
        if kind is not None and pa.types.is_timestamp(kind):
            return instant
        if kind is not None and pa.types.is_integer(kind):
            return f"cast({sql} as bigint)"
        if kind is not None and not _may_be_number(kind):
            raise self._mismatch(
                f"timestamp={text!r} has type {kind}",
                f"give a timestamp or milliseconds since 1970, as in timestamp='cast({text} as timestamp)'",
            )
        # the type is not known here; Spark folds the condition, but checks both casts before
        number = f"cast({sql} as string)"
        number = f"coalesce(try_cast({number} as bigint), try_cast(try_cast({number} as double) as bigint))"
        time = f"if(typeof({sql}) like 'timestamp%', {instant}, {number})"
        return f"if(({sql}) is null, null, coalesce({time}, {_INVALID_TIME_SQL}))"

    def _resolve(self, text: str, role: str) -> tuple[str, pa.DataType | None]:
        """Return Spark SQL, and the type if `text` names a column."""
        if not _IDENTIFIER.fullmatch(text.strip()):
            return text, None
        name = text.strip().strip("`").replace("``", "`")
        if name.lower() not in self._columns:
            raise self._mismatch(
                f"{role}={text!r} names no column of the rows",
                f"name one of {', '.join(self._rows.names)}; write text in quotes, as in {role}=\"'{name}'\"",
            )
        field = self._columns[name.lower()]
        return quoted(field.name), field.type

    def _mismatch(self, what: str, do: str) -> SchemaMismatch:
        return SchemaMismatch(
            f"topic {self._topic}: {what}", data="nothing was read or written", do=do
        )


def part_expression(key: str | None, partition: str | None, parts: int) -> str | None:
    """Return the expression of a row's part, None for one part.

    Order is preserved within a part: rows with the same key share one. Without keys, rows of the same
    partition do; without either, rows of the same Spark task.
    """
    if parts == 1:
        return None
    if key is not None:
        number = f"xxhash64({key})"
    else:
        number = f"coalesce({partition}, 0)" if partition else "spark_partition_id()"
    return f"cast(pmod({number}, {parts}) as int)"


def _may_be_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(check(kind) for check in (*checks, *texts))


def _json(what: str) -> str:
    return f"to_json({what}, map('ignoreNullFields', 'false'))"
