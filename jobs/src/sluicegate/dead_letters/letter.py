"""Builds the dead letters of refused rows, and counts the dead letters of an epoch by kind.

In a topic a dead letter is one JSON object in the column `value`. In a table it is a row; of the
columns `reason`, `payload`, `payload_sha256`, `payload_of`, `source` and `source_<field>` it fills those
that the table has. Sinks refuse rows; late and broken rows are the job's own dead letters.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from sluicegate.errors import RowRefused
from sluicegate.sinks.contract import BoundSink
from sluicegate.sinks.reserved_columns import PART, SOURCE

_PAYLOAD_BYTES = 64 << 10
"""How much of a refused row a dead letter contains."""

STAGED_ROW = "staged row"
"""`payload_of` of a refused row: payload and hash are of the row for the sinks, not of the source's record."""

_RESERVED = "__"
"""Prefix of the columns that no sink receives."""

OTHER = "other"
_MAX_KINDS = 20

SHORT_REASON = 200
"""Characters of a reason that are never cut."""

_JSON_KIND = r'"reason"\s*:\s*"(?P<kind>[A-Za-z]+)'
_TEXT_KIND = r"^(?P<kind>[A-Za-z]+)"

Fields = Mapping[str, object]
"""The fields of a dead letter."""


def refused_letter(row: pa.RecordBatch, reason: str) -> Fields:
    """Return the dead letter of a refused row: the row as the sinks would get it, cut, and its hash."""
    values = {name: to_python(row.column(name)[0]) for name in row.schema.names}
    source = _json_object(values.get(SOURCE))
    sinks = [v for name, v in values.items() if v is not None and not name.startswith(_RESERVED)]
    text = json.dumps(sinks, default=_printable, ensure_ascii=False)
    letter: dict[str, object] = {
        "reason": reason,
        "payload": text.encode()[:_PAYLOAD_BYTES].decode(errors="ignore"),
        "payload_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "payload_of": STAGED_ROW,
    }
    return letter if source is None else letter | {"source": source}


def to_python(value: pa.Scalar) -> object:
    """Return an Arrow value as a Python object; never fails, because a refused row may contain anything.

    Text that is not UTF-8 gets replacement characters. A date or time that Python cannot represent,
    such as one after year 9999, becomes text: its number and unit since 1970.
    """
    if not value.is_valid:
        return None
    if pt.is_struct(value.type):
        return {field.name: to_python(value[i]) for i, field in enumerate(value.type)}
    if pt.is_list(value.type) or pt.is_large_list(value.type) or pt.is_map(value.type):
        return [to_python(item) for item in value.values]
    try:
        converted: object = value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode(errors="replace")
    except (ValueError, OverflowError):
        return f"{value.value} ({value.type})"
    return converted


def letter_of_row(staged: pa.StructScalar) -> Fields | None:
    """Return the dead letter in a row of the dead letters' output, None if the row has another form."""
    row = to_python(staged)
    if not isinstance(row, dict):
        return None
    if "value" in row:
        return letter_of_reason(row["value"])
    fields = {name.lower(): value for name, value in row.items() if name != PART}
    return fields if _is_letter(fields) else None


def letter_of_reason(reason: object) -> Fields | None:
    """Return the dead letter that a job gave as its reason, None if the reason is plain text."""
    fields = _json_object(reason)
    return fields if fields is not None and _is_letter(fields) else None


def _is_letter(fields: Fields) -> bool:
    """Return whether fields are a dead letter; that of a record without a value has no payload."""
    payload, source = fields.get("payload"), fields.get("source")
    if payload is not None or not isinstance(fields.get("reason"), str):
        return isinstance(payload, str)
    return bool(source if isinstance(source, Mapping) else _json_object(source))


def stage_letter(sink: BoundSink, schema: pa.Schema, letter: Fields) -> pa.RecordBatch:
    """Return a dead letter as a staged row; the longer of payload and reason is cut until the sink accepts it.

    A reason may contain a value of the row (rule 10).

    Raises:
        RowRefused: the sink refuses it even without a payload, and with a short reason.
    """
    while True:
        staged = _staged(schema, letter)
        refusals = sink.refusals(staged)
        if refusals is None or refusals.null_count == len(refusals):
            return staged
        payload, reason = (str(letter.get(name) or "") for name in ("payload", "reason"))
        if not payload and len(reason) <= SHORT_REASON:
            raise RowRefused(
                f"sink {sink.id} refuses a dead letter: {refusals[0]}",
                data="the epoch is undecided; no sink shows any of it, and nothing is lost",
                do="raise the limit of the dead letters' topic, or widen the columns of their table",
            )
        if len(reason) > max(len(payload), SHORT_REASON):
            letter = {**letter, "reason": reason[: max(SHORT_REASON, len(reason) // 2)]}
        else:
            letter = {**letter, "payload": payload[: len(payload) // 2]}


def count_kinds(rows: pa.RecordBatch) -> Counter[str]:
    """Count dead letters by kind: the first word of their reason, such as 'late' or 'refused'."""
    columns = {name.lower(): name for name in rows.schema.names}
    if not rows.num_rows or not columns.keys() & {"value", "reason"}:
        return Counter({OTHER: rows.num_rows} if rows.num_rows else {})
    name, pattern = ("value", _JSON_KIND) if "value" in columns else ("reason", _TEXT_KIND)
    matches = pc.extract_regex(rows.column(columns[name]), pattern=pattern)
    words = pc.struct_field(matches, [0])
    counts: Counter[str] = Counter()
    for item in pc.value_counts(words).to_pylist():
        word = item["values"] or OTHER
        kind = (word.decode() if isinstance(word, bytes) else word).lower()
        counts[kind if kind in counts or len(counts) < _MAX_KINDS else OTHER] += item["counts"]
    return counts


def _staged(schema: pa.Schema, letter: Fields) -> pa.RecordBatch:
    values: dict[str, object] = {PART: 0}
    if "value" in schema.names:
        # JSON may escape half of a surrogate pair, which UTF-8 cannot represent
        values["value"] = json.dumps(letter, ensure_ascii=False).encode(errors="replace")
    else:
        values |= _flatten(letter)
    arrays = [_array(values.get(f.name, values.get(f.name.lower())), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _flatten(letter: Fields) -> dict[str, object]:
    source = letter.get("source")
    if not isinstance(source, Mapping):
        return dict(letter)
    fields = {f"source_{name}": value for name, value in source.items()}
    return {**fields, **letter, "source": json.dumps(source, ensure_ascii=False)}


def _array(value: object, kind: pa.DataType) -> pa.Array:
    """Return a value as an array of length 1; null if the column's type cannot represent it."""
    if isinstance(value, str):
        value = value.encode(errors="replace").decode()
    try:
        return pa.array([value]).cast(kind) if value is not None else pa.nulls(1, kind)
    except (ValueError, TypeError, OverflowError, NotImplementedError):  # Arrow's are among these
        return pa.nulls(1, kind)  # `source` has it as text; the sink may refuse the null


def _json_object(text: object) -> Fields | None:
    """Return JSON text as a mapping, None if it is not an object: a job's own dead letters may be anything."""
    try:
        parsed = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _printable(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
