"""Rows that the job itself refuses, as a staging task sees them; no JVM is needed for it."""

from __future__ import annotations

import json

import pyarrow as pa

from sluicegate.sinks.chunks import unpack
from sluicegate.sinks.contract import BoundSink
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.outputs import LETTERS, REFUSED
from sluicegate.spark.staging import StagedPart, StageOrder, parse, stage_with

ROWS = pa.schema([("id", pa.int64())])


def bound(name: str, schema: pa.Schema) -> BoundSink:
    return MemorySink(name).bind(schema, lineage="l", apply_timeout_s=1)


def staged(reasons: list[str | None], *, letters: bool = True) -> list[StagedPart]:
    """Stage a row for each reason."""
    sinks = (bound("rows", ROWS), bound("letters", LETTERS))
    order = StageOrder("/nowhere", 0, "a", 1 << 20, sinks, sinks[1].id if letters else None)
    count = len(reasons)
    ids = pa.StructArray.from_arrays([pa.array(range(count), pa.int64())], ["id"])
    empty = pa.nulls(count, pa.struct([("value", pa.binary())]))
    batch = pa.record_batch({"s0": ids, "s1": empty, REFUSED: pa.array(reasons, pa.string())})
    return parse(pa.Table.from_batches(stage_with(order)([batch])))


def rows(parts: list[StagedPart], sink: str) -> list[dict[str, object]]:
    chunks = [p.chunk for p in parts if p.chunk and p.chunk.sink == f"memory.{sink}"]
    return [row for c in chunks if c.inline for b in unpack(c.inline) for row in b.to_pylist()]


def letters(parts: list[StagedPart]) -> list[dict[str, object]]:
    return [json.loads(str(row["value"], "utf-8")) for row in rows(parts, "letters")]  # type: ignore[call-overload]


def test_a_refused_row_is_a_letter_and_in_no_sink() -> None:
    parts = staged([None, "no city", None])
    assert rows(parts, "rows") == [{"id": 0}, {"id": 2}]
    (letter,) = letters(parts)
    assert letter["reason"] == "no city"
    assert letter["payload"] == '[{"id": 1}]'
    assert sum(part.refused for part in parts) == 1


def test_a_reason_that_is_a_letter_is_the_letter() -> None:
    whole = {"reason": "no city", "payload": "7", "source": {"offset": 3}}
    assert letters(staged([json.dumps(whole)])) == [whole]


def test_a_reason_that_is_other_json_is_a_reason() -> None:
    assert letters(staged(['{"why": 1}']))[0]["reason"] == '{"why": 1}'


def test_without_dead_letters_the_reason_is_reported() -> None:
    """The driver fails the epoch with it; of a whole letter it is the reason that is said."""
    parts = staged([json.dumps({"reason": "no city", "payload": "7"})], letters=False)
    assert [(part.refused, part.reason) for part in parts] == [(1, "no city")]


def test_without_any_reason_nothing_is_refused() -> None:
    parts = staged([None, None])
    assert len(rows(parts, "rows")) == 2
    assert letters(parts) == []
