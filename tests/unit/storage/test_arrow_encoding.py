"""Staged rows as Arrow IPC."""

from __future__ import annotations

import pyarrow as pa

from sluicegate.storage.arrow_encoding import decode_batches, encode_batches


def test_batches_are_decoded_as_they_were_encoded() -> None:
    batches = [pa.record_batch({"ip": ["a", None]}), pa.record_batch({"ip": ["b"]})]
    assert list(decode_batches(encode_batches(batches[0].schema, batches))) == batches


def test_rows_are_compressed() -> None:
    batch = pa.record_batch({"ip": ["10.0.0.1"] * 10_000})
    assert len(encode_batches(batch.schema, [batch])) < batch.nbytes / 4
