"""Dead letters of refused rows, and what kinds of letters an epoch has.

A letter is one JSON object in a column `value` (a topic), or a row with the columns `reason`,
`payload`, `payload_sha256`, `payload_of`, `source` and `source_<field>`, those of them that the sink
has (a table). Not here: which rows are refused (the sinks), or late or broken (the job). Called by
`staging` on the executors.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.protocol.errors import RowRefused
from sluicegate.sinks.contract import BoundSink
from sluicegate.spark.outputs import PART, SOURCE

_PAYLOAD_BYTES = 64 << 10
"""How much of a refused row a dead letter carries."""

STAGED_ROW = "staged row"
"""`payload_of` of a refused row: the payload is what the sinks were to get, not the source's record."""

_OURS = "__"
"""How the names of columns begin that are no sink's."""

OTHER = "other"
_MOST_KINDS = 20

_JSON_KIND = r'"reason"\s*:\s*"(?P<kind>[A-Za-z]+)'
_TEXT_KIND = r"^(?P<kind>[A-Za-z]+)"

Letter = Mapping[str, object]


def refused_letter(row: pa.RecordBatch, reason: str) -> Letter:
    """Return a refused row as a dead letter: as it was for the sinks, cut, with its hash."""
    values = row.to_pylist()[0]
    source = _object(values.get(SOURCE))
    sinks = [v for name, v in values.items() if v is not None and not name.startswith(_OURS)]
    text = json.dumps(sinks, default=_printable, ensure_ascii=False)
    letter: dict[str, object] = {
        "reason": reason,
        "payload": text.encode()[:_PAYLOAD_BYTES].decode(errors="ignore"),
        "payload_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "payload_of": STAGED_ROW,
    }
    return letter if source is None else letter | {"source": source}


def own_letter(row: Mapping[str, object] | None) -> Letter | None:
    """Return a row of the dead letters' own output, if it is a letter whose payload can be cut."""
    found: Letter | None = row
    if row is not None and "value" in row:
        found = _object(row["value"])
    elif row is not None:
        found = {name.lower(): value for name, value in row.items() if name != PART}
    return found if found is not None and isinstance(found.get("payload"), str) else None


def stated(reason: str) -> Letter | None:
    """Return the letter that a job gave as its reason, None where it is a plain one."""
    found = _object(reason)
    return found if found is not None and isinstance(found.get("payload"), str) else None


def fitting(sink: BoundSink, schema: pa.Schema, letter: Letter) -> pa.RecordBatch:
    """Return a letter as a staged row, its payload cut until the sink takes it (rule 10).

    Args:
        sink: of the dead letters.
        schema: of its staged rows.
        letter: see the module.

    Raises:
        RowRefused: it takes none, not even without a payload.
    """
    while True:
        staged = _staged(schema, letter)
        refusals = sink.refusals(staged)
        if refusals is None or refusals.null_count == len(refusals):
            return staged
        payload = str(letter["payload"])
        if not payload:
            raise RowRefused(
                f"sink {sink.id} takes no dead letter: {refusals[0]}",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="raise the limit of the dead letters' topic, or widen the columns of their table",
            )
        letter = {**letter, "payload": payload[: len(payload) // 2]}


def kinds(rows: pa.RecordBatch) -> Counter[str]:
    """Count letters by kind: the first word of their reason, such as 'late' or 'refused'."""
    spelled = {name.lower(): name for name in rows.schema.names}
    if not rows.num_rows or not spelled.keys() & {"value", "reason"}:
        return Counter({OTHER: rows.num_rows} if rows.num_rows else {})
    name, pattern = ("value", _JSON_KIND) if "value" in spelled else ("reason", _TEXT_KIND)
    found = pc.extract_regex(rows.column(spelled[name]), pattern=pattern)
    words = pc.struct_field(found, [0])
    counted: Counter[str] = Counter()
    for item in pc.value_counts(words).to_pylist():
        word = item["values"] or OTHER
        kind = (word.decode() if isinstance(word, bytes) else word).lower()
        counted[kind if kind in counted or len(counted) < _MOST_KINDS else OTHER] += item["counts"]
    return counted


def _staged(schema: pa.Schema, letter: Letter) -> pa.RecordBatch:
    filled: dict[str, object] = {PART: 0}
    if "value" in schema.names:
        filled["value"] = json.dumps(letter, ensure_ascii=False).encode()
    else:
        filled |= _flat(letter)
    arrays = [_fitted(filled.get(f.name, filled.get(f.name.lower())), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _flat(letter: Letter) -> dict[str, object]:
    source = letter.get("source")
    if not isinstance(source, Mapping):
        return dict(letter)
    fields = {f"source_{name}": value for name, value in source.items()}
    return {**fields, **letter, "source": json.dumps(source, ensure_ascii=False)}


def _fitted(value: object, kind: pa.DataType) -> pa.Array:
    """Return a value as an array of one; null where the column is of a kind that it cannot have."""
    try:
        return pa.array([value]).cast(kind) if value is not None else pa.nulls(1, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(1, kind)  # `source` has it as text, and the sink may refuse the null


def _object(text: object) -> Letter | None:
    """Return JSON text as a mapping, None if it is none: somebody's own letters may be anything."""
    try:
        parsed = json.loads(text) if isinstance(text, str | bytes) else None
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _printable(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
