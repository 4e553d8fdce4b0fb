"""Encoding of staged rows: Arrow IPC streams compressed with zstd.

A module of its own, because the operator imports `staging_area` without pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


def encode_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Encode batches as one IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    encoded: bytes = out.getvalue().to_pybytes()
    return encoded


def decode_batches(encoded: bytes) -> Iterator[pa.RecordBatch]:
    """Decode an IPC stream, one batch at a time."""
    with pa.ipc.open_stream(encoded) as reader:
        yield from reader
