"""Each value that a MySQL table refuses becomes a dead letter, whatever its bytes are."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.dead_letters.letter import refused_letter, stage_letter
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.memory import MemorySink
from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate.sinks.mysql.connection import Address
from sluicegate.sinks.mysql.row_validation import refusals
from sluicegate.sinks.mysql.statements import InsertForm
from sluicegate.sinks.mysql.writer import BoundMySQL
from sluicegate.spark.outputs import DEAD_LETTER_SCHEMA
from sluicegate.spark.staging import StageAttempt, StageOrder, parse, stage_task
from sluicegate.storage.arrow_encoding import decode_batches

TIMES = pa.timestamp("us", "UTC")
YEAR_57000 = 1_760_000_000_000 * 1_000_000
"""Milliseconds taken for seconds."""
YEAR_0 = -62_200_000_000 * 1_000_000


def text(raw: bytes | None) -> pa.Array:
    """Return a string column with any bytes, as Spark casts them."""
    return pa.array([b"1", raw], pa.binary()).view(pa.string())


def column(declared: str, family: Family, **fields: Any) -> Column:  # noqa: ANN401 - any field
    return Column("x", declared, family, declared.partition("(")[0], **fields)


VARCHAR = column("varchar(20)", Family.TEXT, chars=20, octets=80, charset="utf8mb4")
DATETIME = column("datetime(6)", Family.DATETIME, fraction=6)
JSON = column("json", Family.JSON)
REFUSED: dict[str, tuple[Column, pa.Array]] = {
    "too long": (VARCHAR, text(b"x" * 30)),
    "not UTF-8": (VARCHAR, text(b"\xff\xfe")),
    "not in the character set": (
        column("varchar(9)", Family.TEXT, chars=9, octets=9, charset="ascii"),
        text("é".encode()),
    ),
    "too many bytes": (column("tinytext", Family.TEXT, octets=255), text(b"x" * 300)),
    "not JSON": (JSON, text(b"{")),
    "JSON that is not UTF-8": (JSON, text(b'"\xff"')),
    "JSON of 101 levels": (JSON, text(b"[" * 101 + b"]" * 101)),
    "JSON of 700 levels": (JSON, text(b"[" * 700 + b"]" * 700)),
    "JSON of 100,000 levels": (JSON, text(b"[" * 100_000 + b"]" * 100_000)),
    "not a member": (column("enum('1')", Family.ENUM, members=("1",)), text(b"\xff")),
    "too long bytes": (column("binary(2)", Family.BINARY, octets=2), pa.array([b"1", b"\xff" * 3])),
    "integer": (column("tinyint", Family.INTEGER), pa.array([1, 300], pa.int64())),
    "fraction": (column("int", Family.INTEGER), pa.array([Decimal("1.0"), Decimal("1.5")])),
    "decimal": (
        column("decimal(3,1)", Family.DECIMAL, precision=3, scale=1),
        pa.array([Decimal("1.0"), Decimal("999.9")]),
    ),
    "not finite": (column("double", Family.FLOAT), pa.array([1.0, float("nan")])),
    "date after 9999": (column("date", Family.DATE), pa.array([1, 4_000_000], pa.date32())),
    "time after 9999": (DATETIME, pa.array([1, YEAR_57000], TIMES)),
    "time before year 1": (DATETIME, pa.array([1, YEAR_0], TIMES)),
    "timestamp after 2038": (
        column("timestamp(6)", Family.DATETIME, fraction=6),
        pa.array([2_000_000, 4_000_000_000_000_000], TIMES),
    ),
    "null": (column("int", Family.INTEGER, nullable=False), pa.array([1, None], pa.int32())),
}


@pytest.mark.parametrize(("declared", "values"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_the_table_refuses_becomes_a_dead_letter(
    declared: Column, values: pa.Array
) -> None:
    """The first row of each is written, the second is not, and the task goes on."""
    form = InsertForm("t", (declared,), (), "error", aliased=True)
    binding, address = SinkBinding("mysql", "table d.t", 1, "m"), Address("h", 1, "u", "p", "d")
    sink = BoundMySQL("mysql.t", binding, (), None, address, form, 1000, 64 << 20, 60, "L")
    letters = MemorySink("letters").bind(DEAD_LETTER_SCHEMA, lineage="L", apply_timeout_s=1)
    order = StageOrder("/nowhere", 1 << 20, (sink, letters), letters.id)
    rows = pa.StructArray.from_arrays([values], ["x"])
    empty = pa.nulls(2, pa.struct(list(DEAD_LETTER_SCHEMA)))
    batch = pa.record_batch({"s0": rows, "s1": empty})
    parts = parse(stage_task(order, StageAttempt(0, "a"))([batch]), "a")
    chunks = {part.chunk.sink: part.chunk for part in parts if part.chunk}
    assert chunks["mysql.t"].rows == 1
    (decoded,) = decode_batches(chunks[letters.id].inline or b"")
    letter = json.loads(decoded.column("value")[0].as_py())
    assert letter["reason"].startswith("refused by mysql.t: column x ")


def test_an_integer_type_without_a_single_value_for_the_column_is_refused_as_a_whole() -> None:
    """The years 1901 to 2155 in an 8-bit column: its largest value is as wrong as any other."""
    batch = pa.record_batch({"x": pa.array([126, 127], pa.int8())})
    reasons = refusals(batch, (column("year", Family.INTEGER),), keys=(), row_bytes=1 << 20)
    assert reasons is not None
    assert reasons.null_count == 0


ANY_COLUMN = st.one_of(
    st.binary(max_size=20).map(lambda raw: pa.array([raw], pa.binary()).view(pa.string())),
    st.integers(-(2**63), 2**63 - 1).flatmap(
        lambda number: st.sampled_from(
            [TIMES, pa.timestamp("s"), pa.timestamp("ns"), pa.duration("us"), pa.date64()]
        ).map(lambda kind: pa.array([number], pa.int64()).view(kind))
    ),
    st.integers(-(2**31), 2**31 - 1).map(
        lambda days: pa.array([days], pa.int32()).view(pa.date32())
    ),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, max_value=10**9).map(
        lambda number: pa.array([number])
    ),
    st.floats().map(lambda number: pa.array([number])),
    st.none().map(lambda _: pa.nulls(1)),
)
ANY_VALUE = st.recursive(
    ANY_COLUMN,
    lambda inner: st.one_of(
        inner.map(lambda values: pa.ListArray.from_arrays([0, 1], values)),
        inner.map(lambda values: pa.MapArray.from_arrays([0, 1], pa.array(["k"]), values)),
        inner.map(lambda values: pa.StructArray.from_arrays([values], ["f"])),
    ),
    max_leaves=3,
)


@given(values=ANY_VALUE, source=st.binary(max_size=30))
def test_a_dead_letter_can_be_made_of_any_row(values: pa.Array, source: bytes) -> None:
    struct = pa.StructArray.from_arrays([values], ["x"])
    row = pa.record_batch(
        {"s0": struct, "__source": pa.array([source], pa.binary()).view(pa.string())}
    )
    letters = MemorySink("letters").bind(DEAD_LETTER_SCHEMA, lineage="L", apply_timeout_s=1)
    staged = stage_letter(letters, DEAD_LETTER_SCHEMA, refused_letter(row, "refused by t: x"))
    assert json.loads(staged.column("value")[0].as_py())["payload"].startswith('[{"x": ')


JSON_TEXT = st.recursive(
    st.text(st.characters(codec=None), max_size=5) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k"), inner),
    max_leaves=4,
)


@given(payload=st.text(st.characters(codec=None), max_size=10), source=JSON_TEXT)
def test_a_dead_letter_that_a_job_made_of_any_json_can_be_staged(
    payload: str, source: object
) -> None:
    table = pa.schema([("payload", pa.string()), ("source", pa.string()), ("source_k", pa.int32())])
    letters = MemorySink("letters").bind(table, lineage="L", apply_timeout_s=1)
    (row,) = stage_letter(letters, table, {"payload": payload, "source": source}).to_pylist()
    assert row["payload"] is not None
