"""Reads JSON objects in plain Python, for verification. Pure; shares no code with the jobs' expressions."""

from __future__ import annotations

import json
import re
from typing import NoReturn

_HALF_PAIR = re.compile("[\ud800-\udfff]")


class Number(str):
    """The text of a JSON number, as it is written."""

    __slots__ = ()


def read_object(text: bytes) -> dict[str, object] | None:
    """Return a JSON object (RFC 8259), its numbers as `Number`; None if the bytes are anything else."""
    try:
        decoded = text.decode(json.detect_encoding(text))  # json.loads accepts surrogates in UTF-8
        read = json.loads(decoded, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def field_text(row: dict[str, object], name: str) -> str | None:
    """Return a field as a string column has it, None if it is missing, null, an object or an array.

    A string column of the jobs also takes objects and arrays, as they are written. An object with half of a
    surrogate pair in a column is none, because that is no text.
    """
    value = row.get(name)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str) and not _HALF_PAIR.search(value) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
