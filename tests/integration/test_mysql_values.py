"""Every value is preserved, and `refusals` refuses exactly what the server would refuse."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.local_services import Services
from sluicegate.errors import SinkRejected
from sluicegate.protocol.markers import Verdict
from sluicegate.sinks.mysql.writer import BoundMySQL
from tests.integration.mysql_fixtures import MySQL

pytestmark = [pytest.mark.integration, pytest.mark.mysql]

SPECIAL = st.sampled_from(
    ["'", "\\", "\x00", "\x1a", '"', "\n", "%s", "_", "😀", "ß", "\\'", "-- "]
)
TEXTS = st.lists(st.one_of(SPECIAL, st.text(max_size=5)), max_size=6).map("".join)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "s": st.one_of(st.none(), TEXTS),
            "b": st.one_of(st.none(), st.binary(max_size=20)),
            "i": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "u": st.one_of(st.none(), st.integers(0, 2**64 - 1).map(Decimal)),
            "d": st.one_of(
                st.none(),
                st.decimals(min_value=-(10**27), max_value=10**27, places=10),
            ),
            "f": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            "t": st.one_of(st.none(), st.datetimes(dt.datetime(1, 1, 1))),  # noqa: DTZ001
            "day": st.one_of(st.none(), st.dates(dt.date(1, 1, 1))),
            "yes": st.one_of(st.none(), st.booleans()),
        }
    ),
    min_size=1,
    max_size=8,
)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("i", pa.int64()),
        ("u", pa.decimal128(20, 0)),
        ("d", pa.decimal128(38, 10)),
        ("f", pa.float64()),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("yes", pa.bool_()),
    ]
)
BODY = (
    "n BIGINT PRIMARY KEY, s LONGTEXT COLLATE utf8mb4_bin, b LONGBLOB, i BIGINT, u BIGINT UNSIGNED,"
    " d DECIMAL(38,10), f DOUBLE, t DATETIME(6), day DATE, yes TINYINT(1)"
)
MAX_TIMESTAMP = dt.datetime(2038, 1, 19, 3, 14, 7, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001

LIMITS: Sequence[tuple[str, pa.DataType, Sequence[object]]] = [
    ("TINYINT", pa.int64(), [-129, -128, 127, 128]),
    ("SMALLINT UNSIGNED", pa.int64(), [-1, 0, 65535, 65536]),
    ("MEDIUMINT", pa.int64(), [-8388609, -8388608, 8388607, 8388608]),
    ("INT UNSIGNED", pa.int32(), [-1, 0, 2**31 - 1]),
    ("BIGINT UNSIGNED", pa.decimal128(38, 2), [Decimal(-1), Decimal(2**64 - 1), Decimal(2**64)]),
    ("YEAR", pa.int64(), [1900, 1901, 2155, 2156]),
    ("BIT(3)", pa.int64(), [-1, 0, 7, 8]),
    ("DECIMAL(5,2)", pa.decimal128(20, 2), [Decimal("999.99"), Decimal("-999.99"), Decimal(1000)]),
    ("DECIMAL(5,2)", pa.int64(), [-1000, -999, 999, 1000, 2**63 - 1]),
    ("DECIMAL(65,0)", pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38)]),
    ("DECIMAL(5,2) UNSIGNED", pa.decimal128(9, 2), [Decimal("-0.01"), Decimal(0), Decimal(1)]),
    ("FLOAT", pa.float64(), [3.4028234663852886e38, 3.5e38, -3.5e38, 1e-50]),
    ("DOUBLE UNSIGNED", pa.float64(), [-1.0, 0.0, 1.7976931348623157e308]),
    ("DOUBLE(5,2)", pa.float64(), [999.0, 999.99, 999.994, 999.996, -999.996, 1000.0, -1000.0]),
    ("VARCHAR(3)", pa.string(), ["😀😀😀", "😀😀😀😀", "abcd", ""]),
    ("CHAR(2)", pa.string(), ["ab", "abc"]),
    ("VARCHAR(9) CHARACTER SET utf8mb3", pa.string(), ["aß€", "😀"]),
    ("VARCHAR(9) CHARACTER SET latin1", pa.string(), ["ß€ÿ\x81\x9d", "ž", "Ω", "\x80", "Š"]),
    ("VARCHAR(9) CHARACTER SET ascii", pa.string(), ["a\x7f", "ß"]),
    ("TINYTEXT", pa.string(), ["a" * 255, "a" * 256, "😀" * 63, "😀" * 64]),
    ("TINYTEXT CHARACTER SET latin1", pa.string(), ["ß" * 255, "ß" * 256]),
    ("VARBINARY(3)", pa.binary(), [b"\0\0\0", b"\0\0\0\0"]),
    ("BINARY(2)", pa.binary(), [b"\0\1", b"\0\1\2"]),
    ("TINYBLOB", pa.binary(), [b"\xff" * 255, b"\xff" * 256]),
    ("ENUM('a','it''s')", pa.string(), ["a", "it's", "b", ""]),
    (
        "JSON",
        pa.string(),
        ['{"a": [1, null]}', "", "{", "NaN", "1e999", '"\\ud800"', '"\\ud83d\\ude00"'],
    ),
    ("JSON", pa.string(), ["[" * n + "]" * n for n in (31, 101)]),
    (
        "TIMESTAMP NULL",
        pa.timestamp("us", "UTC"),
        [MAX_TIMESTAMP, MAX_TIMESTAMP + SECOND, MAX_TIMESTAMP.replace(year=1969)],
    ),
    ("TIMESTAMP NULL", pa.timestamp("us"), [EPOCH, EPOCH + SECOND]),
    ("INT NOT NULL", pa.int64(), [None, 1]),
    (
        "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
        pa.timestamp("us", "UTC"),
        [None, MAX_TIMESTAMP],
    ),
]


@pytest.fixture(scope="module")
def mysql(services: Services) -> MySQL:
    return MySQL.of(services)


@pytest.fixture(scope="module")
def sink_of_all_types(mysql: MySQL) -> BoundMySQL:
    return mysql.bind(mysql.table(BODY), rows=SCHEMA, keys=["n"])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=ROWS)
def test_values_of_every_type_are_preserved(
    mysql: MySQL, sink_of_all_types: BoundMySQL, rows: list[dict[str, object]]
) -> None:
    table = sink_of_all_types.form.table
    mysql.execute(f"DELETE FROM {table}")
    numbered = [{"n": n, **row} for n, row in enumerate(rows)]
    batch = pa.RecordBatch.from_pylist(numbered, schema=SCHEMA)
    assert sink_of_all_types.refusals(batch) is None
    sink_of_all_types.open(0).apply(mysql.decision(0, markers=False), [batch])
    stored = [dict(zip(SCHEMA.names, row, strict=True)) for row in mysql.rows(table)]
    normalized = [
        {**row, "yes": None if row["yes"] is None else bool(row["yes"])} for row in stored
    ]
    assert normalized == numbered


@pytest.mark.parametrize(("kind", "staged", "values"), LIMITS, ids=lambda v: str(v)[:24])
def test_rows_are_refused_before_the_decision_exactly_if_the_server_would_refuse_them(
    mysql: MySQL, kind: str, staged: pa.DataType, values: Sequence[object]
) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", staged)])
    table = mysql.table(f"n BIGINT PRIMARY KEY, v {kind}")
    bound = mysql.bind(table, rows=schema, keys=["n"])
    writer = bound.open(0)
    for n, value in enumerate(values):
        batch = pa.RecordBatch.from_pylist([{"n": n, "v": value}], schema=schema)
        refused = bound.refusals(batch)
        reason = _server_refusal(lambda: writer.apply(mysql.decision(0, markers=False), [batch]))  # noqa: B023 - called at once
        if reason:
            assert refused is not None, f"{value!r} was accepted; the server says {reason}"
            assert "column v" in refused.to_pylist()[0]
        else:
            assert refused is None or _is_stricter_by_design(kind, value), refused
    writer.close()


def _server_refusal(apply: Callable[[], object]) -> str:
    """Return why the server refused, empty if it did not."""
    try:
        apply()
    except SinkRejected as error:
        return error.what
    return ""


def _is_stricter_by_design(kind: str, value: object) -> bool:
    """Return whether the sink deliberately refuses what the server accepts or silently changes."""
    silent = kind.startswith("TIMESTAMP NOT NULL") and value is None  # MariaDB: the current time
    return silent or kind == "JSON"  # the nesting limit differs between servers


@pytest.mark.parametrize(
    ("kind", "staged", "value"),
    [
        ("DECIMAL(5,2)", pa.decimal128(20, 4), Decimal("1.2345")),
        ("INT", pa.decimal128(20, 4), Decimal("1.5")),
        ("DOUBLE", pa.float64(), float("nan")),
        ("DOUBLE", pa.float64(), float("inf")),
        ("DATETIME", pa.timestamp("us"), dt.datetime(1, 1, 1) - dt.timedelta(0)),  # noqa: DTZ001
    ],
)
def test_values_that_the_server_would_change_silently_are_refused(
    mysql: MySQL, kind: str, staged: pa.DataType, value: object
) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", staged)])
    bound = mysql.bind(mysql.table(f"n BIGINT PRIMARY KEY, v {kind}"), rows=schema, keys=["n"])
    batch = pa.RecordBatch.from_pylist([{"n": 0, "v": value}], schema=schema)
    assert (bound.refusals(batch) is not None) == (kind != "DATETIME")


def test_bytes_that_are_not_utf8_are_refused_in_a_string_column(mysql: MySQL) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", pa.string())])
    bound = mysql.bind(mysql.table("n BIGINT PRIMARY KEY, v TEXT"), rows=schema, keys=["n"])
    values = pa.array([b"good", b"\xff\xfe", None], pa.binary()).view(pa.string())
    refused = bound.refusals(
        pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), values], schema=schema)
    )
    assert refused is not None
    assert refused.to_pylist() == [None, "column v is not UTF-8", None]


def test_a_row_longer_than_a_packet_is_refused_and_the_others_are_not(mysql: MySQL) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", pa.binary())])
    bound = mysql.bind(mysql.table("n BIGINT PRIMARY KEY, v LONGBLOB"), rows=schema, keys=["n"])
    half = bound.packet_bytes // 2  # hexadecimal doubles it
    batch = pa.RecordBatch.from_pylist(
        [{"n": 0, "v": b"x"}, {"n": 1, "v": b"x" * half}, {"n": None, "v": b""}], schema=schema
    )
    refused = bound.refusals(batch)
    assert refused is not None
    assert [r and r.split(",")[0] for r in refused.to_pylist()] == [
        None,
        "the row's text is longer than a packet of the server allows",
        "column n is a key and null",
    ]


def test_a_zero_in_an_auto_increment_column_stays_zero(mysql: MySQL) -> None:
    schema = pa.schema([("n", pa.int64())])
    table = mysql.table("n BIGINT AUTO_INCREMENT PRIMARY KEY")
    writer = mysql.bind(table, rows=schema, keys=["n"]).open(0)
    writer.apply(mysql.decision(0, markers=False), [pa.record_batch({"n": [0]})])
    assert mysql.rows(table) == [(0,)]


def test_struct_columns_are_flattened_and_fractions_are_truncated_to_the_column(
    mysql: MySQL,
) -> None:
    window = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
    table = mysql.table("window_start DATETIME PRIMARY KEY, extra JSON")
    rows = pa.schema([("window", window), ("extra", pa.list_(pa.int64()))])
    bound = mysql.bind(table, rows=rows, keys=["window_start"])
    assert (
        bound.expressions
        == (("extra", "to_json(`extra`)"), ("window_start", "`window`.`start`"))[::-1]
    )
    late = dt.datetime(2024, 1, 1, 23, 59, 59, 999999)  # noqa: DTZ001
    batch = pa.record_batch({"window_start": pa.array([late]), "extra": ["[1]"]})
    assert bound.open(0).apply(mysql.decision(0), [batch]).verdict is Verdict.APPLY
    assert mysql.rows(table)[0][0] == late.replace(microsecond=0)
