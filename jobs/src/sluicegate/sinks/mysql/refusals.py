"""Which staged rows the table would not take, and why: the last look before the decision.

After it a row that the server refuses leaves a decided epoch stuck, so this looks at everything
that strict mode refuses and that depends on the row alone. Not here: duplicates, foreign keys,
CHECKs and triggers, which only the server can judge. Pure; Arrow's kernels, and Python per cell
only for what they cannot do (JSON, broken UTF-8). Called by `bound`.
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

from sluicegate.sinks.mysql.columns import Column, Family
from sluicegate.sinks.mysql.literals import row_literals, wall_clock

_JSON_LEVELS, _MARIADB_JSON_LEVELS = 100, 31
"""How deep a value may be nested: MySQL's documented limit, and JSON_VALID's in MariaDB."""

PREVIEW_CHARS = 40
"""How much of a value a reason shows."""

_FIRST_TIMESTAMP = dt.datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - wall clock, in UTC
_LAST_TIMESTAMP = dt.datetime(2038, 1, 19, 3, 14, 7, 999999)  # noqa: DTZ001
_FIRST, _LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
_PLAIN_BYTES = 96
"""No number's and no date's text is longer."""

_NOT_IN_CHARSET = {
    "ascii": r"[^\x00-\x7F]",
    "utf8mb3": r"[\x{10000}-\x{10FFFF}]",
    "utf8": r"[\x{10000}-\x{10FFFF}]",
    # MySQL's latin1 is cp1252, with the five bytes that it leaves open as control characters.
    "latin1": "[^\\x00-\\x7F\\x{81}\\x{8D}\\x{8F}\\x{90}\\x{9D}\\x{A0}-\\x{FF}"
    + "".join(sorted(set(bytes(range(0x80, 0xA0)).decode("cp1252", "ignore"))))
    + "]",
}

Finding = tuple[pa.Array, str]
"""Per value whether it is refused, and the reason in words."""


def refusals(
    batch: pa.RecordBatch, columns: tuple[Column, ...], *, keys: tuple[str, ...], row_bytes: int
) -> pa.StringArray | None:
    """Say per row why it cannot be written, null where it can; None if all can.

    Args:
        batch: staged rows; columns beyond `columns` are left alone.
        columns: of the table.
        keys: columns that must not be null: NULLs never conflict, so a retry would add a row.
        row_bytes: the most that a row's text may have.
    """
    reasons: list[pa.Array] = []
    for column in columns:
        values = batch.column(column.name)
        broken = _broken_utf8(values)
        if broken is not None:
            reasons.append(_reasons(broken, column, "is not UTF-8", None))
            values = pc.if_else(broken, None, _repaired(values, broken))
        for refused, why in _findings(values, column, required=column.name in keys):
            refused = pc.fill_null(refused, False)  # noqa: FBT003, PLW2901 - Arrow's own signature
            if pc.any(refused).as_py():
                reasons.append(_reasons(refused, column, why, values))
    if not reasons:
        return _too_long(batch, columns, row_bytes)
    said = pc.coalesce(*reasons)
    passed = said.is_null()
    long = _too_long(batch.filter(passed), columns, row_bytes)
    return said if long is None else pc.replace_with_mask(said, passed, long)


def _findings(values: pa.Array, column: Column, *, required: bool) -> Iterator[Finding]:
    if values.null_count and (required or not column.nullable):
        why = "is a key and null" if required else "is NOT NULL and null"
        yield values.is_null(), why
    if values.null_count == len(values):
        return
    check = _CHECKS.get(column.family) if column.family else None
    if check is not None:
        yield from check(values, column)


def _text(values: pa.Array, column: Column) -> Iterator[Finding]:
    if column.chars is not None:
        long = pc.greater(pc.utf8_length(values), column.chars)
        yield long, f"is longer than {column.declared} takes, {column.chars} characters"
    elif column.octets is not None:
        # One byte a character in latin1 and ascii, whatever it is in UTF-8.
        single = column.charset in ("latin1", "ascii")
        size = pc.utf8_length(values) if single else pc.binary_length(values)
        yield (
            pc.greater(size, column.octets),
            (f"is longer than {column.declared} takes, {column.octets} bytes"),
        )
    foreign = _NOT_IN_CHARSET.get(column.charset or "")
    if foreign is not None:
        has = pc.match_substring_regex(values, foreign)
        yield has, f"has a character that its character set {column.charset} does not have"


def _json(values: pa.Array, column: Column) -> Iterator[Finding]:
    yield from _text(values, column)
    levels = _JSON_LEVELS if column.kind == "json" else _MARIADB_JSON_LEVELS
    bad = [v is not None and not _is_json(v, levels) for v in values.to_pylist()]
    yield pa.array(bad, pa.bool_()), f"is not JSON (of at most {levels} levels)"


def _is_json(text: str, levels: int) -> bool:
    try:
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair fails here
    except (ValueError, RecursionError):
        return False
    return _levels(value) <= levels


def _finite(text: str) -> float:
    """Refuse NaN, Infinity and 1e999, which Python's reader takes."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _levels(value: object) -> int:
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 1 if inner is None else 1 + max(map(_levels, inner), default=0)


def _enum(values: pa.Array, column: Column) -> Iterator[Finding]:
    known = pc.is_in(values, value_set=pa.array(column.members, values.type))
    yield pc.and_(values.is_valid(), pc.invert(known)), f"is none of {column.declared}"


def _binary(values: pa.Array, column: Column) -> Iterator[Finding]:
    if column.octets is not None:
        long = pc.greater(pc.binary_length(values), column.octets)
        yield long, f"is longer than {column.declared} takes, {column.octets} bytes"


def _integer(values: pa.Array, column: Column) -> Iterator[Finding]:
    if pt.is_boolean(values.type):
        if column.kind == "year":
            yield values.is_valid(), "is a boolean, not a year"
        return
    low, high = column.integers()
    outside = f"is out of range of {column.declared}, {low} to {high}"
    if pt.is_decimal(values.type):
        yield _inexact(values, 0), f"has a fraction, which {column.declared} does not take"
    yield _outside(values, low, high), outside


def _decimal(values: pa.Array, column: Column) -> Iterator[Finding]:
    if pt.is_boolean(values.type):
        return
    digits, scale = column.precision or 0, column.scale or 0
    if pt.is_decimal(values.type) and values.type.scale > scale:
        yield _inexact(values, scale), f"has more than {scale} digits behind the point"
    limit = 10 ** (digits - scale) - 1
    low = 0 if column.unsigned else -limit
    outside = _outside(values, low, limit)
    if column.unsigned and pt.is_decimal(values.type):
        outside = pc.or_(outside, pc.less(values, pa.scalar(Decimal(0), values.type)))
    yield outside, f"is out of range of {column.declared}"


def _float(values: pa.Array, column: Column) -> Iterator[Finding]:
    yield pc.invert(pc.is_finite(values)), "is not a finite number, which MySQL does not have"
    limit = column.largest_float()
    far = pc.greater_equal if column.scale is not None else pc.greater
    yield far(pc.abs(values), limit), f"is out of range of {column.declared}"
    if column.unsigned:
        yield pc.less(values, 0.0), f"is out of range of {column.declared}"


def _date(values: pa.Array, column: Column) -> Iterator[Finding]:
    days = values.cast(pa.date32(), safe=False)
    early = pc.less(days, pa.scalar(_FIRST.date(), pa.date32()))
    late = pc.greater(days, pa.scalar(_LAST.date(), pa.date32()))
    yield pc.or_(early, late), f"is out of range of {column.declared}, 0001-01-01 to 9999-12-31"


def _datetime(values: pa.Array, column: Column) -> Iterator[Finding]:
    stamp = column.kind == "timestamp"
    first, last = (_FIRST_TIMESTAMP, _LAST_TIMESTAMP) if stamp else (_FIRST, _LAST)
    clock = wall_clock(values, column)
    early = pc.less(clock, pa.scalar(first, pa.timestamp("us")))
    late = pc.greater(clock, pa.scalar(last, pa.timestamp("us")))
    yield pc.or_(early, late), f"is out of range of {column.declared}, {first} to {last} UTC"


_CHECKS: dict[Family, Callable[[pa.Array, Column], Iterator[Finding]]] = {
    Family.TEXT: _text,
    Family.JSON: _json,
    Family.ENUM: _enum,
    Family.BINARY: _binary,
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DATE: _date,
    Family.DATETIME: _datetime,
}


def _outside(values: pa.Array, low: int, high: int) -> pa.Array:
    """Say per integer, or decimal without fraction, whether it is beyond the bounds."""
    if pt.is_decimal(values.type):
        kind = pa.decimal256(76, 0)
        wide = pc.cast(pc.trunc(values), kind, safe=False)
        bounds = [pa.scalar(Decimal(b), kind) for b in (low, high)]
    else:
        bits = values.type.bit_width
        signed = pt.is_signed_integer(values.type)
        least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        if low <= least and high >= most:
            return _none(values)
        wide = values
        bounds = [pa.scalar(min(max(b, least), most), values.type) for b in (low, high)]
    return pc.or_(pc.less(wide, bounds[0]), pc.greater(wide, bounds[1]))


def _none(values: pa.Array) -> pa.Array:
    return pc.and_(values.is_null(), values.is_valid())


def _inexact(values: pa.Array, scale: int) -> pa.Array:
    """Say per decimal whether it has digits behind the given scale that are not zero."""
    if values.type.scale <= scale:
        return _none(values)
    return pc.not_equal(pc.round(values, ndigits=scale, round_mode="towards_zero"), values)


def _broken_utf8(values: pa.Array) -> pa.Array | None:
    """Say per string whether its bytes are not UTF-8 (Spark casts any bytes to a string); or None."""
    if not (pt.is_string(values.type) or pt.is_large_string(values.type)):
        return None
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raw = values.cast(pa.binary() if pt.is_string(values.type) else pa.large_binary())
        return pa.array([v is not None and not _is_utf8(v) for v in raw.to_pylist()], pa.bool_())
    return None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _repaired(values: pa.Array, broken: pa.Array) -> pa.Array:
    raw = values.cast(pa.binary() if pt.is_string(values.type) else pa.large_binary())
    return pc.if_else(broken, None, raw).cast(values.type)


def _reasons(refused: pa.Array, column: Column, why: str, values: pa.Array | None) -> pa.Array:
    """Return the reason where a value is refused, with the value's beginning."""
    text = f"column {column.name} {why}"
    if values is None or why.endswith("null"):
        return pc.if_else(refused, text, pa.scalar(None, pa.string()))
    shown = pc.fill_null(_preview(pc.if_else(refused, values, pa.scalar(None, values.type))), "")
    return pc.if_else(
        refused,
        pc.binary_join_element_wise(f"{text}; it begins ", shown, ""),
        pa.scalar(None, pa.string()),
    )


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
    """Say which rows' text does not fit a packet; measured only where it might not."""
    if not batch.num_rows or sum(_longest(batch.column(c.name)) for c in columns) <= row_bytes:
        return None
    size = pc.binary_length(row_literals(batch, columns))
    long = pc.greater(size, row_bytes)
    if not pc.any(long).as_py():
        return None
    why = f"the row's text is longer than a packet of the server takes, {row_bytes} bytes"
    return pc.if_else(long, why, pa.scalar(None, pa.string()))


def _longest(values: pa.Array) -> int:
    """Return the most bytes that the text of a column's longest value can have."""
    plain = pt.is_primitive(values.type) or pt.is_decimal(values.type)
    if plain or values.null_count == len(values):
        return _PLAIN_BYTES
    return 2 * int(pc.max(pc.binary_length(values)).as_py()) + 8
