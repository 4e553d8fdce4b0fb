"""Which value of a row goes into which column of a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from sluicegate.errors import SchemaMismatch
from sluicegate.sinks.mysql.column_mapping import map_columns
from sluicegate.sinks.mysql.column_types import Column, describe

TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])
PRICES = pa.struct([("start", pa.float64()), ("end", pa.float64())])


def table(**types: str) -> dict[str, Column]:
    return {
        name: describe({
            "column_name": name, "data_type": kind, "column_type": kind, "extra": "",
            "generation_expression": "", "is_nullable": "YES", "column_default": None,
            "character_maximum_length": None, "character_octet_length": None,
            "numeric_precision": None, "numeric_scale": None, "datetime_precision": 0,
            "character_set_name": None, "collation_name": None, "column_key": "",
        })
        for name, kind in types.items()
    }  # fmt: skip


def mapped(rows: pa.Schema, wanted: Sequence[str] | None = None, **columns: str) -> list[str]:
    found = map_columns(rows, table(**columns), wanted=wanted, where="t")
    return [one.column.name for one in found]


def test_one_end_of_a_window_is_enough() -> None:
    rows = pa.schema([("window", WINDOW), ("hits", pa.int64())])
    assert mapped(rows, window_start="datetime", hits="bigint") == ["window_start", "hits"]
    assert mapped(rows, window_end="datetime", hits="bigint") == ["window_end", "hits"]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (pa.schema([("window", WINDOW), ("hits", pa.int64())]), None),
        (pa.schema([("window", WINDOW), ("hits", pa.int64())]), ("window_start", "hits")),
        (pa.schema([("price", PRICES), ("hits", pa.int64())]), None),
    ],
    ids=["no end of a window", "a column that is named", "a struct that is no window"],
)
def test_a_value_that_the_table_has_no_column_for_is_an_error(
    rows: pa.Schema, wanted: Sequence[str] | None
) -> None:
    """It was written nowhere, and all windows of a key overwrote each other."""
    with pytest.raises(SchemaMismatch, match=r"the table has no column (window|price)_start"):
        mapped(rows, wanted, hits="bigint", window_begin="datetime", price_end="double")
