"""Rows that the job itself refuses, in a staging task without a JVM."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.contract import BoundSink
from sluicegate.sinks.memory import MemorySink
from sluicegate.sinks.reserved_columns import PART, REFUSED
from sluicegate.spark.outputs import DEAD_LETTER_SCHEMA
from sluicegate.spark.staging import StageAttempt, StagedPart, StageOrder, parse, stage_task
from sluicegate.storage.arrow_encoding import decode_batches

ROWS = pa.schema([("id", pa.int64())])


def bound(name: str, schema: pa.Schema) -> BoundSink:
    return MemorySink(name).bind(schema, lineage="l", apply_timeout_s=1)


def staged(
    reasons: list[str | None] | pa.StringArray, *, dead_letters: bool = True
) -> list[StagedPart]:
    """Stage one row per reason."""
    sinks = (bound("rows", ROWS), bound("letters", DEAD_LETTER_SCHEMA))
    order = StageOrder("/nowhere", 1 << 20, sinks, sinks[1].id if dead_letters else None)
    count = len(reasons)
    ids = pa.StructArray.from_arrays([pa.array(range(count), pa.int64())], ["id"])
    empty = pa.nulls(count, pa.struct([("value", pa.binary())]))
    batch = pa.record_batch({"s0": ids, "s1": empty, REFUSED: pa.array(reasons, pa.string())})
    return parse(stage_task(order, StageAttempt(0, "a"))([batch]), "a")


def rows(parts: list[StagedPart], sink: str) -> list[dict[str, object]]:
    chunks = [p.chunk for p in parts if p.chunk and p.chunk.sink == f"memory.{sink}"]
    return [
        row for c in chunks if c.inline for b in decode_batches(c.inline) for row in b.to_pylist()
    ]


def dead_letters_of(parts: list[StagedPart]) -> list[dict[str, object]]:
    return [json.loads(str(row["value"], "utf-8")) for row in rows(parts, "letters")]  # type: ignore[call-overload]


def test_a_refused_row_becomes_a_dead_letter_and_reaches_no_sink() -> None:
    parts = staged([None, "no city", None])
    assert rows(parts, "rows") == [{"id": 0}, {"id": 2}]
    (letter,) = dead_letters_of(parts)
    assert letter["reason"] == "no city"
    assert letter["payload"] == '[{"id": 1}]'
    assert sum(part.refused for part in parts) == 1


def test_a_reason_that_is_not_utf8_is_told_as_well_as_it_can_be() -> None:
    """A job may put the bytes that it cannot read into the reason."""
    reasons = pa.array([b"bad: \xff", None], pa.binary()).view(pa.string())
    parts = staged(reasons)
    assert rows(parts, "rows") == [{"id": 1}]
    assert [letter["reason"] for letter in dead_letters_of(parts)] == ["bad: \ufffd"]


def test_a_reason_that_is_a_whole_dead_letter_is_used_as_such() -> None:
    whole = {"reason": "no city", "payload": "7", "source": {"offset": 3}}
    assert dead_letters_of(staged([json.dumps(whole)])) == [whole]


def test_the_dead_letter_of_a_record_without_a_value_is_used_as_such() -> None:
    """It has no payload: `to_json` leaves out a field that is null."""
    whole = {"reason": "empty: the record has no id", "source": {"offset": 3}}
    assert dead_letters_of(staged([json.dumps(whole)])) == [whole]


@pytest.mark.parametrize(
    "text", ['{"why": 1}', '{"reason": "x"}', '{"reason": "x", "source": "s"}']
)
def test_a_reason_that_is_other_json_is_plain_text(text: str) -> None:
    assert dead_letters_of(staged([text]))[0]["reason"] == text


def test_without_a_dead_letter_sink_the_reason_is_reported() -> None:
    """The driver fails the epoch with it; of a whole dead letter only the reason is reported."""
    parts = staged([json.dumps({"reason": "no city", "payload": "7"})], dead_letters=False)
    assert [(part.refused, part.reason) for part in parts] == [(1, "no city")]


def test_without_a_reason_nothing_is_refused() -> None:
    parts = staged([None, None])
    assert len(rows(parts, "rows")) == 2
    assert dead_letters_of(parts) == []


@pytest.mark.parametrize("part", [None, -1, 2])
def test_a_row_whose_part_a_sink_does_not_have_ends_the_epoch(part: int | None) -> None:
    """No transaction would write the row, so a sink of the user's own would lose it."""
    sink = MemorySink("parts", parts=2).bind(ROWS, lineage="l", apply_timeout_s=1)
    order = StageOrder("/nowhere", 1 << 20, (sink,), None)
    columns = [pa.array([1, 2], pa.int64()), pa.array([0, part], pa.int32())]
    batch = pa.record_batch({"s0": pa.StructArray.from_arrays(columns, ["id", PART])})
    with pytest.raises(SettingsInvalid, match=r"memory.parts .* part .*, and it has parts 0 to 1"):
        list(stage_task(order, StageAttempt(0, "a"))([batch]))
