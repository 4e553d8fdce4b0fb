"""Finds staged rows that the table would refuse: the last check before the decision. Pure.

After the decision, a row that the server refuses leaves the epoch stuck, so this checks everything that
strict mode refuses and that depends on the row alone. Only the server can check duplicates, foreign
keys, CHECKs and triggers. Uses Arrow's kernels, and Python code per cell only where they cannot help
(JSON, invalid UTF-8).
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate.sinks.mysql.literals import row_literals, wall_clock
from sluicegate.sinks.utf8 import invalid_utf8

_MAX_EXPONENT, _MAX_KEY_BYTES = 308, 65_535
"""Of a number and of an object's key in MySQL's JSON."""

_JSON_LEVELS, _MARIADB_JSON_LEVELS = 100, 31
"""The nesting limits: MySQL's documented limit, and that of JSON_VALID in MariaDB."""

PREVIEW_CHARS = 40
"""How much of a value a reason quotes."""

_FIRST_TIMESTAMP = dt.datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - wall clock, in UTC
_LAST_TIMESTAMP = dt.datetime(2038, 1, 19, 3, 14, 7, 999999)  # noqa: DTZ001
_FIRST, _LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
_PLAIN_BYTES = 96
"""The text of a number or a date is never longer."""

_NOT_IN_CHARSET = {
    "ascii": r"[^\x00-\x7F]",
    "utf8mb3": r"[\x{10000}-\x{10FFFF}]",
    "utf8": r"[\x{10000}-\x{10FFFF}]",
    # MySQL's latin1 is cp1252, with the five bytes that cp1252 leaves undefined as control characters.
    "latin1": "[^\\x00-\\x7F\\x{81}\\x{8D}\\x{8F}\\x{90}\\x{9D}\\x{A0}-\\x{FF}"
    + "".join(sorted(set(bytes(range(0x80, 0xA0)).decode("cp1252", "ignore"))))
    + "]",
}

Check = tuple[pa.Array, str]
"""Whether each value is refused, and the reason."""


def refusals(
    batch: pa.RecordBatch, columns: tuple[Column, ...], *, keys: tuple[str, ...], row_bytes: int
) -> pa.StringArray | None:
    """Return for each row why it cannot be written, null if it can; None if all rows can.

    Args:
        batch: staged rows; columns other than `columns` are ignored.
        columns: of the table.
        keys: columns that must not be null: NULLs never conflict, so a retry would add a row.
        row_bytes: the maximum length of a row's text.
    """
    reasons: list[pa.Array] = []
    for column in columns:
        values = batch.column(column.name)
        invalid = invalid_utf8(values)
        if invalid is not None:
            reasons.append(_reasons(invalid, column, "is not UTF-8", None))
            values = pc.if_else(invalid, None, values)
        for refused, reason in _checks(values, column, required=column.name in keys):
            refused = pc.fill_null(refused, False)  # noqa: FBT003, PLW2901 - Arrow's own signature
            if pc.any(refused).as_py():
                reasons.append(_reasons(refused, column, reason, values))
    if not reasons:
        return _too_long(batch, columns, row_bytes)
    combined = pc.coalesce(*reasons)
    accepted = combined.is_null()
    too_long = _too_long(batch.filter(accepted), columns, row_bytes)
    return combined if too_long is None else pc.replace_with_mask(combined, accepted, too_long)


def _checks(values: pa.Array, column: Column, *, required: bool) -> Iterator[Check]:
    if values.null_count and (required or not column.nullable):
        yield values.is_null(), "is a key and null" if required else "is NOT NULL and null"
    if values.null_count == len(values):
        return
    check = _CHECKS_BY_FAMILY.get(column.family) if column.family else None
    if check is not None:
        yield from check(values, column)


def _text_or_bytes(values: pa.Array, column: Column) -> Iterator[Check]:
    if column.chars is not None:
        too_long = pc.greater(pc.utf8_length(values), column.chars)
        yield too_long, f"is longer than {column.declared} allows, {column.chars} characters"
    elif column.octets is not None:
        # One byte per character in latin1 and ascii, however many in UTF-8.
        single = column.charset in ("latin1", "ascii")
        size = pc.utf8_length(values) if single else pc.binary_length(values)
        too_long = pc.greater(size, column.octets)
        yield too_long, f"is longer than {column.declared} allows, {column.octets} bytes"
    outside = _NOT_IN_CHARSET.get(column.charset or "")
    if outside is not None:
        matches = pc.match_substring_regex(values, outside)
        yield matches, f"has a character that its character set {column.charset} does not have"


def _json(values: pa.Array, column: Column) -> Iterator[Check]:
    yield from _text_or_bytes(values, column)
    levels = _JSON_LEVELS if column.kind == "json" else _MARIADB_JSON_LEVELS
    invalid = [v is not None and not _is_json(v, levels) for v in values.to_pylist()]
    yield pa.array(invalid, pa.bool_()), f"is not JSON (of at most {levels} levels)"


def _is_json(text: str, levels: int) -> bool:
    try:
        value = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate fails here
    except (ValueError, RecursionError):
        return False
    return _is_at_most(levels, value)


def _finite(text: str) -> float:
    """Refuse NaN, Infinity and numbers that are no double, which Python's parser accepts.

    MySQL also refuses a zero with an exponent that no double has, such as 0e400.
    """
    number, exponent = float(text), text.lower().partition("e")[2]
    if not math.isfinite(number) or (number == 0 and int(exponent or 0) > _MAX_EXPONENT):
        raise ValueError(text)
    return number


def _is_at_most(levels: int, value: object) -> bool:
    """Return whether a value is nested at most so deep, with keys that fit; a scalar is one level."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict) and any(len(key.encode()) > _MAX_KEY_BYTES for key in value):
        return False
    return levels > 0 and all(_is_at_most(levels - 1, item) for item in inner)


def _enum(values: pa.Array, column: Column) -> Iterator[Check]:
    is_member = pc.is_in(values, value_set=pa.array(column.members, values.type))
    yield pc.and_(values.is_valid(), pc.invert(is_member)), f"is not one of {column.declared}"


def _integer(values: pa.Array, column: Column) -> Iterator[Check]:
    if pt.is_boolean(values.type):
        if column.kind == "year":
            yield values.is_valid(), "is a boolean, not a year"
        return
    low, high = column.integer_range()
    outside = f"is out of range of {column.declared}, {low} to {high}"
    if pt.is_decimal(values.type):
        yield _inexact(values, 0), f"has a fraction, which {column.declared} cannot store"
    yield _outside(values, low, high), outside


def _decimal(values: pa.Array, column: Column) -> Iterator[Check]:
    if pt.is_boolean(values.type):
        return
    digits, scale = column.precision or 0, column.scale or 0
    if pt.is_decimal(values.type) and values.type.scale > scale:
        yield _inexact(values, scale), f"has more than {scale} decimal places"
    limit = 10 ** (digits - scale) - 1
    low = 0 if column.unsigned else -limit
    outside = _outside(values, low, limit)
    if column.unsigned and pt.is_decimal(values.type):
        outside = pc.or_(outside, pc.less(values, pa.scalar(Decimal(0), values.type)))
    yield outside, f"is out of range of {column.declared}"


def _float(values: pa.Array, column: Column) -> Iterator[Check]:
    yield pc.invert(pc.is_finite(values)), "is not a finite number, and MySQL stores no other"
    limit = column.max_float()
    exceeds = pc.greater_equal if column.scale is not None else pc.greater
    yield exceeds(pc.abs(values), limit), f"is out of range of {column.declared}"
    if column.unsigned:
        yield pc.less(values, 0.0), f"is out of range of {column.declared}"


def _date(values: pa.Array, column: Column) -> Iterator[Check]:
    days = values.cast(pa.date32(), safe=False)
    early = pc.less(days, pa.scalar(_FIRST.date(), pa.date32()))
    late = pc.greater(days, pa.scalar(_LAST.date(), pa.date32()))
    yield pc.or_(early, late), f"is out of range of {column.declared}, 0001-01-01 to 9999-12-31"


def _datetime(values: pa.Array, column: Column) -> Iterator[Check]:
    stamp = column.kind == "timestamp"
    first, last = (_FIRST_TIMESTAMP, _LAST_TIMESTAMP) if stamp else (_FIRST, _LAST)
    clock = wall_clock(values, column)
    early = pc.less(clock, pa.scalar(first, pa.timestamp("us")))
    late = pc.greater(clock, pa.scalar(last, pa.timestamp("us")))
    yield pc.or_(early, late), f"is out of range of {column.declared}, {first} to {last} UTC"


_CHECKS_BY_FAMILY: dict[Family, Callable[[pa.Array, Column], Iterator[Check]]] = {
    Family.TEXT: _text_or_bytes,
    Family.JSON: _json,
    Family.ENUM: _enum,
    Family.BINARY: _text_or_bytes,
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DATE: _date,
    Family.DATETIME: _datetime,
}


def _outside(values: pa.Array, low: int, high: int) -> pa.Array:
    """Return whether each integer, or integer part of a decimal, is outside the bounds."""
    if pt.is_decimal(values.type):
        kind = pa.decimal256(76, 0)
        wide = pc.cast(pc.trunc(values), kind, safe=False)
        bounds = [pa.scalar(Decimal(b), kind) for b in (low, high)]
    else:
        bits = values.type.bit_width
        signed = pt.is_signed_integer(values.type)
        least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        if low > most or high < least:
            return values.is_valid()
        wide = values
        bounds = [pa.scalar(min(max(b, least), most), values.type) for b in (low, high)]
    return pc.or_(pc.less(wide, bounds[0]), pc.greater(wide, bounds[1]))


def _inexact(values: pa.Array, scale: int) -> pa.Array:
    """Return whether each decimal has non-zero digits beyond the given scale."""
    return pc.not_equal(pc.round(values, ndigits=scale, round_mode="towards_zero"), values)


def _reasons(refused: pa.Array, column: Column, reason: str, values: pa.Array | None) -> pa.Array:
    """Return the reason for each refused value, with the start of the value."""
    text = f"column {column.name} {reason}"
    if values is None or reason.endswith("null"):
        return pc.if_else(refused, text, None)
    previews = pc.fill_null(_preview(pc.if_else(refused, values, None)), "")
    texts = pc.binary_join_element_wise(f"{text}; it starts with ", previews, "")
    return pc.if_else(refused, texts, None)


def _preview(values: pa.Array) -> pa.Array:
    if pt.is_binary(values.type) or pt.is_large_binary(values.type):
        heads = [v and v[: PREVIEW_CHARS // 2].hex() for v in values.to_pylist()]
        return pa.array(heads, pa.string())
    try:
        text = values.cast(pa.string())
    except pa.ArrowInvalid:  # a timestamp beyond year 9999 has no text
        text = values.cast(pa.int64(), safe=False).cast(pa.string())
    return pc.utf8_slice_codeunits(text, 0, PREVIEW_CHARS)


def _too_long(
    batch: pa.RecordBatch, columns: tuple[Column, ...], row_bytes: int
) -> pa.StringArray | None:
    """Return a reason for rows whose text exceeds a packet; measures rows only if one might."""
    at_most = sum(_max_text_bytes(batch.column(column.name)) for column in columns)
    if not batch.num_rows or at_most <= row_bytes:
        return None
    size = pc.binary_length(row_literals(batch, columns))
    too_long = pc.greater(size, row_bytes)
    if not pc.any(too_long).as_py():
        return None
    reason = f"the row's text is longer than a packet of the server allows, {row_bytes} bytes"
    return pc.if_else(too_long, reason, None)


def _max_text_bytes(values: pa.Array) -> int:
    """Return an upper bound of the text of a column's longest value, in bytes."""
    plain = pt.is_primitive(values.type) or pt.is_decimal(values.type)
    if plain or values.null_count == len(values):
        return _PLAIN_BYTES
    return 2 * int(pc.max(pc.binary_length(values)).as_py()) + 8
