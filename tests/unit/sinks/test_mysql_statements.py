"""Statements of the MySQL sink, parsed by an independent parser of MySQL literals.

tests/integration/test_mysql_values.py checks the same properties on a real server.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate.sinks.mysql.literals import literals
from sluicegate.sinks.mysql.statements import InsertForm, Statement, inserts

SPECIAL = st.sampled_from(
    ["'", "\\", "\x00", "\x1a", '"', "\n", "%", "_", "😀", "ß", "\\'", "--", ""]
)
TEXTS = st.lists(st.one_of(SPECIAL, st.text(max_size=5)), max_size=6).map("".join)
STAMPS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001
DECIMALS = st.decimals(min_value=-(10**20), max_value=10**20, places=10)
ADDING = (
    " ON DUPLICATE KEY UPDATE `v` ="
    " IF(VALUES(`v`) IS NULL, `t`.`v`, COALESCE(`t`.`v`, 0) + VALUES(`v`))"
)
SLOW_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine must not fail these tests."""
_UNESCAPED = {"0": "\0", "Z": "\x1a", "n": "\n", "r": "\r", "t": "\t", "b": "\b"}


def column(name: str, **changes: Any) -> Column:  # noqa: ANN401 - passed on
    return Column(
        **{"name": name, "declared": "any", "family": Family.TEXT, "kind": "any", **changes}
    )


def values_of(sql: str) -> Iterator[list[object]]:
    """Yield the rows after VALUES, parsed as in the MySQL manual."""
    at = sql.index(" VALUES ") + len(" VALUES ")
    while True:
        assert sql[at] == "("
        row: list[object] = []
        while sql[at] != ")":
            value, at = literal(sql, at + 1)
            row.append(value)
            assert sql[at] in ",)"
        yield row
        at += 1
        if sql[at : at + 1] != ",":
            return
        at += 1


def literal(sql: str, at: int) -> tuple[object, int]:
    if sql.startswith("NULL", at):
        return None, at + 4
    if sql.startswith("X'", at):
        end = sql.index("'", at + 2)
        return bytes.fromhex(sql[at + 2 : end]), end + 1
    if sql[at] == "'":
        return quoted(sql, at + 1)
    number = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?").match(sql, at)
    assert number
    return (float(number[0]) if re.search(r"[.e]", number[0]) else int(number[0])), number.end()


def quoted(sql: str, at: int) -> tuple[str, int]:
    text = ""
    while sql[at] != "'" or sql[at : at + 2] == "''":
        if sql[at] == "\\":
            text += _UNESCAPED.get(sql[at + 1], sql[at + 1])
            at += 2
        else:
            text += sql[at]
            at += 2 if sql[at] == "'" else 1
    return text, at + 1


def test_a_form_names_what_changes_the_result_and_nothing_else() -> None:
    """It is compared with that of the decision: another order of columns or keys is the same."""
    one = form("id", "total", keys=("id", "total"))
    assert str(one) == str(form("total", "id", keys=("total", "id")))
    others = (
        form("id", "total", keys=("id", "total"), on_conflict="add"),
        form("id", keys=("id",)),
        form("id", "total", keys=("id",)),
    )
    assert len({str(one), *map(str, others)}) == 4


def form(*names: str, **changes: Any) -> InsertForm:  # noqa: ANN401 - passed on
    columns = tuple(column(name) for name in names)
    arguments = {"table": "t", "columns": columns, "keys": names[:1], "on_conflict": "replace"}
    return InsertForm(**{**arguments, "aliased": False, **changes})


def written(
    batches: list[pa.RecordBatch], insert_form: InsertForm, rows: int = 10_000
) -> list[Statement]:
    return list(inserts(batches, insert_form, statement_rows=rows, packet_bytes=1 << 24))


def read_back(values: pa.Array, **changes: Any) -> list[object]:  # noqa: ANN401 - passed on
    """Return what a server would parse from one column."""
    insert_form = form("v", columns=(column("v", **changes),))
    batch = pa.RecordBatch.from_arrays([values], ["v"])
    return [row[0] for s in written([batch], insert_form) for row in values_of(s.sql.decode())]


@SLOW_MACHINE
@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=8))
def test_any_string_is_preserved(texts: list[str | None]) -> None:
    assert read_back(pa.array(texts, pa.string())) == texts


@SLOW_MACHINE
@given(st.lists(st.one_of(st.none(), st.binary(max_size=9)), min_size=1, max_size=8), st.data())
def test_any_bytes_are_preserved_from_any_slice(
    blobs: list[bytes | None], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(blobs) - 1))
    values = pa.array(blobs, pa.binary()).slice(start)
    assert read_back(values) == blobs[start:]


@SLOW_MACHINE
@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1))
def test_any_double_is_preserved(numbers: list[float | None]) -> None:
    assert read_back(pa.array(numbers, pa.float64())) == numbers


@SLOW_MACHINE
@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_any_integer_is_preserved(numbers: list[int | None]) -> None:
    assert read_back(pa.array(numbers, pa.int64())) == numbers


@SLOW_MACHINE
@given(st.lists(st.one_of(st.none(), DECIMALS), min_size=1))
def test_any_decimal_is_preserved(numbers: list[Decimal | None]) -> None:
    found = read_back(pa.array(numbers, pa.decimal128(38, 10)))
    assert [v if v is None else Decimal(str(v)) for v in found] == numbers


def test_a_decimal_is_never_a_double_literal() -> None:
    found = literals(pa.array([Decimal("1E-10")], pa.decimal128(38, 10)), column("v"))
    assert found.to_pylist()[0].startswith("'")


@SLOW_MACHINE
@given(st.lists(st.one_of(st.none(), STAMPS), min_size=1), st.integers(0, 6))
def test_a_timestamp_is_truncated_to_the_column_and_never_rounded(
    stamps: list[dt.datetime | None], fraction: int
) -> None:
    found = read_back(pa.array(stamps, pa.timestamp("us", "UTC")), fraction=fraction)
    step = 10 ** (6 - fraction)
    truncated = [s and s.replace(microsecond=s.microsecond // step * step) for s in stamps]
    assert [f and dt.datetime.fromisoformat(str(f)) for f in found] == truncated


def test_a_timestamp_is_written_in_utc_whatever_its_zone() -> None:
    noon = dt.datetime(2024, 6, 1, 12, tzinfo=dt.UTC)
    found = read_back(pa.array([noon], pa.timestamp("us", "Europe/Berlin")))
    assert str(found[0]).startswith("2024-06-01 12:00:00")


def test_booleans_are_one_and_zero() -> None:
    assert read_back(pa.array([True, None, False])) == [1, None, 0]


def test_a_time_is_truncated_to_the_column() -> None:
    late = dt.time(23, 59, 59, 999999)
    assert read_back(pa.array([late], pa.time64("us"))) == ["23:59:59.000000"]


@SLOW_MACHINE
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 7))
def test_all_rows_are_written_once_in_order_whatever_the_batches(
    sizes: list[int], statement_rows: int
) -> None:
    ids = iter(range(1000))
    batches = [
        pa.record_batch({"v": pa.array([next(ids) for _ in range(size)], pa.int64())})
        for size in sizes
    ]
    statements = written(batches, form("v"), statement_rows)
    rows = [row[0] for s in statements for row in values_of(s.sql.decode())]
    assert rows == list(range(sum(sizes)))
    assert all(s.rows <= statement_rows for s in statements)
    assert sum(s.rows for s in statements) == sum(sizes)


@SLOW_MACHINE
@given(st.lists(st.integers(0, 300), min_size=1, max_size=30))
def test_a_statement_fits_the_packet_unless_a_single_row_exceeds_it(sizes: list[int]) -> None:
    batch = pa.record_batch({"v": ["'" * size for size in sizes]})
    split = list(inserts([batch], form("v"), statement_rows=100, packet_bytes=1624))
    for s in split:
        assert len(s.sql) <= 600 or s.rows == 1, "1 KiB is left for the packet's own bytes"
    rows = [row[0] for s in split for row in values_of(s.sql.decode())]
    assert rows == batch["v"].to_pylist(), "with 'replace', the last row of a key wins"


def test_an_identifier_cannot_escape_its_quotes() -> None:
    (statement,) = written([pa.record_batch({"a`b": [1]})], form("a`b", table="t`; DROP"))
    assert b"INSERT INTO `t``; DROP` (`a``b`)" in statement.sql


@pytest.mark.parametrize(
    ("on_conflict", "aliased", "tail"),
    [
        ("replace", False, " ON DUPLICATE KEY UPDATE `v` = VALUES(`v`)"),
        ("replace", True, " AS incoming ON DUPLICATE KEY UPDATE `v` = incoming.`v`"),
        ("ignore", True, " AS incoming ON DUPLICATE KEY UPDATE `k` = `t`.`k`"),
        (
            "add",
            False,
            ADDING,
        ),
        ("error", True, ""),
    ],
)
def test_each_on_conflict_has_its_clause(on_conflict: str, tail: str, *, aliased: bool) -> None:
    assert form("k", "v", on_conflict=on_conflict, aliased=aliased).tail() == tail


def test_the_parser_of_this_file_is_correct() -> None:
    assert list(values_of(r"INSERT VALUES (1,'a''b\\\Z\0\'',X'00ff',-1.5e-3,NULL),('',2)")) == [
        [1, "a'b\\\x1a\0'", b"\x00\xff", -0.0015, None],
        ["", 2],
    ]
    assert math.isclose(float("1e22"), 1e22)


@pytest.mark.parametrize(("table", "alias"), [("hits", "incoming"), ("Incoming", "incoming_row")])
def test_the_name_of_the_new_row_is_not_that_of_its_table(table: str, alias: str) -> None:
    form = InsertForm(table, (column("k"), column("v")), ("k",), "replace", aliased=True)
    assert form.tail() == f" AS {alias} ON DUPLICATE KEY UPDATE `v` = {alias}.`v`"
