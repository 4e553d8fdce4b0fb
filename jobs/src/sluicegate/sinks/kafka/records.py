"""Staged rows as arguments of `Producer.produce`, a column at a time.

Not here: sending. Staged columns are `key` and `value` (binary, null allowed), and where asked for
`headers` (list of struct key, value) and `partition` (int32, null: by key). Called by `writer` for
every batch of an apply, so it is the hot loop: no Arrow scalar is made per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise, repeat
from typing import Any

import pyarrow as pa

Headers = list[tuple[str, bytes | None]]

_ANY_PARTITION = -1
_NO_CALLBACK = repeat(None)
_NOW = repeat(0)


def arguments(batch: pa.RecordBatch, traceparent: str) -> Iterator[tuple[Any, ...]]:
    """Yield a row's arguments after `topic`, in the order in which `produce` takes them.

    Args:
        batch: staged rows.
        traceparent: added as a header to each record unless empty.
    """
    names = batch.schema.names
    values, keys = binaries(batch.column("value")), binaries(batch.column("key"))
    if "partition" not in names and "headers" not in names and not traceparent:
        return zip(values, keys, strict=True)
    partitions: Iterable[int] = repeat(_ANY_PARTITION)
    if "partition" in names:
        partitions = batch.column("partition").fill_null(_ANY_PARTITION).to_pylist()
    headers = _headers(batch, traceparent)
    # The order of `produce`: topic, value, key, partition, callback, on_delivery, timestamp, headers.
    return zip(values, keys, partitions, _NO_CALLBACK, _NO_CALLBACK, _NOW, headers, strict=False)


def binaries(column: pa.Array) -> list[bytes | None]:
    """Return a binary or string column as bytes.

    Slicing one copy of the data takes a third of the time of `to_pylist`, which makes a scalar
    object for each row (and the kernels that would not need numpy).
    """
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return [None if null else b"" for null in column.is_null().to_pylist()]
    ends = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1].tolist()
    first = ends[0]
    held = data.slice(first, ends[-1] - first).to_pybytes()
    cut: list[bytes | None] = [held[a - first : b - first] for a, b in pairwise(ends)]
    if column.null_count:
        cut = [
            one if there else None
            for one, there in zip(cut, column.is_valid().to_pylist(), strict=True)
        ]
    return cut


def size_of(batch: pa.RecordBatch) -> int:
    """Return the bytes of keys and values."""
    return sum(_length(batch.column(name)) for name in ("key", "value"))


def _length(column: pa.Array) -> int:
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    if not len(column):
        return 0
    ends = memoryview(column.buffers()[1]).cast("i")
    return int(ends[column.offset + len(column)] - ends[column.offset])


def _headers(batch: pa.RecordBatch, traceparent: str) -> Iterable[Headers | None]:
    traced: Headers = [("traceparent", traceparent.encode())] if traceparent else []
    if "headers" not in batch.schema.names:
        return repeat(traced or None)
    return [_header_list(row, traced) for row in batch.column("headers").to_pylist()]


def _header_list(row: list[dict[str, Any]] | None, traced: Headers) -> Headers | None:
    return [(header["key"], header["value"]) for header in row or ()] + traced or None
