"""Converts values to SQL literals with Arrow's kernels, a column at a time; no Python code per cell. Pure.

The literals are for a session as `connection.prepare` sets it up: utf8mb4, strict, backslash escapes,
UTC.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from sluicegate.sinks.mysql.column_types import Column

_ESCAPES = (("\\", "\\\\"), ("'", "\\'"), ("\x00", "\\0"), ("\x1a", "\\Z"))
"""The backslash must be first. Newlines need no escape; \\x1a ends a file on Windows (manual)."""
_NEEDS_ESCAPE = r"[\\'\x00\x1a]"


def row_literals(batch: pa.RecordBatch, columns: tuple[Column, ...]) -> pa.Array:
    """Return one string per row, ',(...)'; concatenated they follow VALUES in a statement."""
    pieces: list[pa.Array | str] = []
    for i, column in enumerate(columns):
        pieces += [",(" if i == 0 else ",", literals(batch.column(column.name), column)]
    return pc.binary_join_element_wise(*pieces, ")", "")


def literals(values: pa.Array, column: Column) -> pa.Array:
    """Return one SQL literal per value; NULL for null."""
    return pc.fill_null(_not_null(values, column), "NULL")


def _not_null(  # noqa: PLR0911 - one case per type
    values: pa.Array, column: Column
) -> pa.Array:
    kind = values.type
    if pt.is_boolean(kind):
        return pc.if_else(values, "1", "0")
    if pt.is_null(kind) or pt.is_integer(kind) or pt.is_floating(kind):
        # A float's text is the shortest that parses to the same float.
        return values.cast(pa.string())
    if pt.is_decimal(kind) or pt.is_date(kind):
        # Quoted: Arrow may write a decimal as 1E-10, which unquoted would be an inexact double.
        return _quoted(values.cast(pa.string()))
    if pt.is_time(kind):
        us, step_us = values.cast(pa.time64("us")).cast(pa.int64()), column.step_us()
        truncated = pc.multiply(pc.divide(us, step_us), step_us)
        return _quoted(truncated.cast(pa.time64("us")).cast(pa.string()))
    if pt.is_timestamp(kind):
        return _quoted(wall_clock(values, column).cast(pa.string()))
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return _hexadecimal(values)
    return _quoted(_escaped(values.cast(pa.string())))


def wall_clock(values: pa.Array, column: Column) -> pa.Array:
    """Return timestamps as UTC wall-clock time, truncated to the column's resolution.

    The server would round up to the next second or day, and so into another window.
    """
    clock = (
        values.cast(pa.timestamp("us", values.type.tz), safe=False)
        .cast(pa.int64())
        .cast(pa.timestamp("us"))
    )
    step_us = column.step_us()
    return pc.floor_temporal(clock, multiple=step_us, unit="microsecond") if step_us > 1 else clock


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("'", text, "'", "")


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPE)).as_py():
        return text
    for raw, escaped in _ESCAPES:
        text = pc.replace_substring(text, raw, escaped)
    return text


def _hexadecimal(values: pa.Array) -> pa.Array:
    """Return X'..' literals; converts the whole buffer at once, because Arrow has no kernel for it."""
    values = values.cast(pa.binary())
    if values.offset or not len(values):
        # Makes the offsets relative to the array's own start.
        values = pa.concat_arrays([values, pa.array([], pa.binary())])
    _, offsets, data = values.buffers()
    ends = pa.Array.from_buffers(pa.int32(), values.offset + len(values) + 1, [None, offsets])
    ends = ends.slice(values.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    digits = bytes(memoryview(data)[first:last]).hex().encode() if data is not None else b""
    doubled = pc.multiply(pc.subtract(ends, ends[0]), 2).cast(pa.int32())
    text = pa.Array.from_buffers(
        pa.string(), len(values), [None, doubled.buffers()[1], pa.py_buffer(digits)]
    )
    literal = pc.binary_join_element_wise("X'", text, "'", "")
    return pc.if_else(values.is_valid(), literal, None)
