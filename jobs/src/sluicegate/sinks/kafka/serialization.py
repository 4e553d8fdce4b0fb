"""Converts staged rows to arguments of `Producer.produce`, a column at a time.

Staged columns are `key` and `value` (binary, nullable) and optionally `headers` (list of struct key,
value), `partition` (integer, null: the key chooses) and `timestamp` (int64, ms; null, 0 or negative: now).
This is the hot loop of an apply, so one call converts all rows of a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Headers = list[tuple[str, bytes | None]]

_ANY_PARTITION = -1
_NO_CALLBACK = repeat(None)
_NOW = 0


def produce_arguments(batch: pa.RecordBatch, traceparent: str) -> Iterator[tuple[Any, ...]]:
    """Yield each row's arguments of `produce` after `topic`; a traceparent becomes a header of each."""
    names = batch.schema.names
    values, keys = _binaries(batch.column("value")), _binaries(batch.column("key"))
    if not {"partition", "headers", "timestamp"} & set(names) and not traceparent:
        return zip(values, keys, strict=True)
    partitions: Iterable[int] = repeat(_ANY_PARTITION)
    if "partition" in names:
        partitions = batch.column("partition").fill_null(_ANY_PARTITION).to_pylist()
    times: Iterable[int] = repeat(_NOW)
    if "timestamp" in names:
        times_ms = batch.column("timestamp").fill_null(_NOW)
        times = pc.if_else(pc.less(times_ms, 0), _NOW, times_ms).to_pylist()
    headers = _headers(batch, traceparent)
    # The order of `produce`: topic, value, key, partition, callback, on_delivery, timestamp, headers.
    return zip(values, keys, partitions, _NO_CALLBACK, _NO_CALLBACK, times, headers, strict=False)


def size_of(batch: pa.RecordBatch) -> int:
    """Return the size of all keys and values in bytes."""
    lengths = (pc.binary_length(_as_binary(batch.column(name))) for name in ("key", "value"))
    return sum(pc.sum(length).as_py() or 0 for length in lengths)


def _as_binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _binaries(column: pa.Array) -> list[bytes | None]:
    """Return a binary or string column as bytes; `to_pylist` is 3 times as fast as slicing the buffer."""
    values: list[bytes | None] = _as_binary(column).to_pylist()
    return values


def _headers(batch: pa.RecordBatch, traceparent: str) -> Iterable[Headers | None]:
    trace: Headers = [("traceparent", traceparent.encode())] if traceparent else []
    if "headers" not in batch.schema.names:
        return repeat(trace or None)
    return [_header_list(row, trace) for row in batch.column("headers").to_pylist()]


def _header_list(row: list[dict[str, Any]] | None, trace: Headers) -> Headers | None:
    return [(header["key"], header["value"]) for header in row or ()] + trace or None
