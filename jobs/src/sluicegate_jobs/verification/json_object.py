"""Reads JSON objects in plain Python, for verification. Pure; shares no code with the jobs' expressions."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 1000
"""How deep objects and arrays may be nested, the outer object included."""

MAX_NAME_BYTES: Final = 50_000

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_STRINGS_AND_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)

_BEGIN = re.compile(r"[ \t\n\r]*\{[ \t\n\r]*")
_NAME = re.compile(r'[ \t\n\r]*(?=")')
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_COMMA_OR_END = re.compile(r"[ \t\n\r]*[,}]")
_END = re.compile(r"[ \t\n\r]*\Z")


class Written(str):
    """A value that is not a string, as it is written: a number, true, false, an object or an array."""

    __slots__ = ()


def read_object(text: bytes) -> dict[str, str | None] | None:
    """Return the fields of a JSON object (RFC 8259); None if the bytes are anything else.

    A string is a `str`, null is None, and any other value is `Written`. The last of two fields with one
    name counts. An object that exceeds MAX_DEPTH or MAX_NAME_BYTES counts as none.
    """
    limit = sys.getrecursionlimit()
    try:
        decoded = text.decode(json.detect_encoding(text))  # json.loads accepts surrogates in UTF-8
        if _is_too_deep(decoded):
            return None
        sys.setrecursionlimit(limit + MAX_DEPTH)  # json calls itself for each level
        return _read_fields(decoded)
    except ValueError:
        return None
    finally:
        sys.setrecursionlimit(limit)


def field_text(row: dict[str, str | None], name: str) -> str | None:
    """Return a field as a string column has it, None if it is missing or null.

    Half of a surrogate pair is no text, so a field with one counts as missing.
    """
    value = row.get(name)
    return None if value is None or _HALF_PAIR.search(value) else str(value)


def _read_fields(text: str) -> dict[str, str | None]:
    """Read the outer object without json, which does not return a value as it is written."""
    fields: dict[str, str | None] = {}
    at = _after(_BEGIN, text, 0)
    has_more = not text.startswith("}", at)
    if not has_more:
        at += 1
    while has_more:
        name, at = _DECODER.raw_decode(text, _after(_NAME, text, at))
        _check_names([(name, None)])
        begin = _after(_COLON, text, at)
        value, end = _DECODER.raw_decode(text, begin)
        if value is not None and not isinstance(value, str):
            value = Written(text[begin:end])
        fields[name] = value
        at = _after(_COMMA_OR_END, text, end)
        has_more = text[at - 1] == ","
    _after(_END, text, at)
    return fields


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of what must be at a position; ValueError if it is missing."""
    match = pattern.match(text, at)
    if match is None:
        raise ValueError(f"no JSON object: {text[at : at + 10]!r} at {at}")
    return match.end()


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for token in _STRINGS_AND_BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    for name, _ in pairs:
        # an escape may be half of a surrogate pair
        if len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
            raise ValueError("a name is too long")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_names(pairs)
    return {}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _number(_text: str) -> int:
    """Convert nothing: only the text is used, and its length is unlimited."""
    return 0


_DECODER = json.JSONDecoder(
    parse_int=_number,
    parse_float=_number,
    parse_constant=_refuse,
    object_pairs_hook=_object,
)
