"""Staged rows as bytes: Arrow IPC streams, compressed with zstd.

Not here: where the bytes go (storage) and which rows they are (spark). Called when staging on
the executors, and when applying on the executors or the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


def pack(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return the batches as one IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    packed: bytes = out.getvalue().to_pybytes()
    return packed


def unpack(packed: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an IPC stream, one at a time."""
    with pa.ipc.open_stream(packed) as reader:
        yield from reader
