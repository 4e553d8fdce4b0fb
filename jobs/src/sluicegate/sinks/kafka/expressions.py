"""Translates a sink's key, value and headers into Spark SQL of the staged columns. Pure.

Spark evaluates them in the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from sluicegate.errors import SchemaMismatch

WHOLE_ROW = "json"
_IDENTIFIER = re.compile(r"`(?:[^`]|``)+`|[A-Za-z_]\w*")
_NESTED = (pa.types.is_struct, pa.types.is_list, pa.types.is_large_list, pa.types.is_map)

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
        field = self._column(text, role)
        if field is None:
            return _BINARY.format(text)
        if any(is_nested(field.type) for is_nested in _NESTED):
            return f"cast({_json(quoted(field.name))} as binary)"
        return _BINARY.format(quoted(field.name))

    def value(self, text: str) -> str:
        """Return the expression of a value: the whole row as JSON, a column or any SQL."""
        if text != WHOLE_ROW:
            return self.binary(text, "value")
        row = f"struct({', '.join(quoted(name) for name in self._rows.names)})"
        return f"cast({_json(row)} as binary)"

    def headers(self, text: str) -> str:
        """Return the expression of headers: array of struct (key, value), or a map column."""
        field = self._column(text, "headers")
        if field is None:
            return _HEADERS.format(text)
        if pa.types.is_map(field.type):
            return _HEADERS.format(f"map_entries({quoted(field.name)})")
        item = field.type.value_type if _is_list(field.type) else None
        if (
            item is None
            or not pa.types.is_struct(item)
            or {f.name for f in item} != {"key", "value"}
        ):
            raise self._mismatch(
                f"headers={text!r} has type {field.type}",
                "give an array of struct<key: string, value: binary>, or a map",
            )
        return _HEADERS.format(quoted(field.name))

    def partition(self, text: str) -> str:
        """Return the expression of a partition number."""
        field = self._column(text, "partition")
        return f"cast({text if field is None else quoted(field.name)} as int)"

    def timestamp(self, text: str) -> str:
        """Return the expression of a record's time in ms since 1970."""
        field = self._column(text, "timestamp")
        if field is not None and pa.types.is_timestamp(field.type):
            return f"unix_millis({quoted(field.name)})"
        return f"cast({text if field is None else quoted(field.name)} as bigint)"

    def _column(self, text: str, role: str) -> pa.Field | None:
        """Return the column that `text` names, None if it is any other expression."""
        if not _IDENTIFIER.fullmatch(text.strip()):
            return None
        name = text.strip().strip("`").replace("``", "`")
        if name.lower() not in self._columns:
            raise self._mismatch(
                f"{role}={text!r} names no column of the rows",
                f"name one of {', '.join(self._rows.names)}; write text in quotes, as in {role}=\"'{name}'\"",
            )
        return self._columns[name.lower()]

    def _mismatch(self, what: str, do: str) -> SchemaMismatch:
        return SchemaMismatch(
            f"topic {self._topic}: {what}", data="nothing was read or written", do=do
        )


def quoted(name: str) -> str:
    """Return a column's name as Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def part_expression(key: str | None, partition: str | None, parts: int) -> str | None:
    """Return the expression of a row's part, None for one part.

    Order is preserved within a part: rows with the same key share one. Without keys, rows of the same
    partition do; without either, rows of the same Spark task.
    """
    if parts == 1:
        return None
    if key is not None:
        return f"cast(pmod(xxhash64({key}), {parts}) as int)"
    return f"cast(pmod({f'coalesce({partition}, 0)' if partition else 'spark_partition_id()'}, {parts}) as int)"


def staged(
    key: str | None,
    value: str,
    headers: str | None,
    partition: str | None,
    timestamp: str | None = None,
) -> Sequence[tuple[str, str]]:
    """Return staged column names with their expressions, in order."""
    no_key = "cast(null as binary)"
    columns = (
        ("key", key or no_key),
        ("value", value),
        ("headers", headers),
        ("partition", partition),
        ("timestamp", timestamp),
    )
    return tuple((name, text) for name, text in columns if text is not None)


def _json(what: str) -> str:
    return f"to_json({what}, map('ignoreNullFields', 'false'))"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
