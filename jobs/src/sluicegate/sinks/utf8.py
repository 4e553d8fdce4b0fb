"""Finds text that is not UTF-8: Spark casts any bytes to a string."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt


def invalid_utf8(values: pa.Array) -> pa.Array | None:
    """Return whether each string is invalid UTF-8; None if none is, or the values are no strings."""
    if not (pt.is_string(values.type) or pt.is_large_string(values.type)):
        return None
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raw = values.cast(pa.large_binary() if pt.is_large_string(values.type) else pa.binary())
        texts = [v and v.decode(errors="ignore").encode() for v in raw.to_pylist()]
        return pc.not_equal(raw, pa.array(texts, raw.type))
    return None
