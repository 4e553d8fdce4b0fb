"""What the functions of jobs/java parse: what Spark, Python and the jobs' verification parse."""

from __future__ import annotations

import itertools
import json
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate.errors import SettingsInvalid
from sluicegate.spark import json_objects
from sluicegate.spark.json_objects import parse_json
from sluicegate.spark.times import parse_time
from sluicegate_jobs.ip_count.job import TIME
from sluicegate_jobs.orders.expected import Order, read_order
from sluicegate_jobs.orders.schema import read_orders
from sluicegate_jobs.two_sinks.job import read_rows
from sluicegate_jobs.two_sinks.verify import read_row

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

MONTHS = ("Jan", "Feb", "Apr", "Dec", "dec", "Xyz")

DEEP: Final = b"[" * 1000 + b"]" * 1000
"""With the object around it, deeper than 1,000."""

LONG_NAME: Final = b'"' + b"n" * 50_001 + b'"'
"""Longer than 50,000 bytes."""

NOT_TOO_MUCH: Final = (
    b'"unread":' + DEEP[1:-1],
    b'"unread":' + b"1" * 5000,
    b'"unread":0.' + b"1" * 5000,
    LONG_NAME[:-2] + b'":1',
)
"""Fields that are as deep or as long as a field may be; a number has no limit."""

VALUES: Final[tuple[tuple[bytes, str | None], ...]] = (
    (b'"x"', "x"),
    (b'"' + "é\\u00e9\\n".encode() + b'"', "éé\n"),
    (b"1.50", "1.50"),
    (b"12345678.5", "12345678.5"),
    (b"1e3", "1e3"),
    (b"-0", "-0"),
    (b"true", "true"),
    (b"null", None),
    (b'{"b" : [1, 2 ]}', '{"b" : [1, 2 ]}'),
    (b'[ "x"]', '[ "x"]'),
)
"""Values of a string column, and their texts."""

NO_OBJECTS: Final = (
    None,
    b"",
    b" ",
    b"null",
    b'"x"',
    b'[{"a":"x"}]',
    b'{"a":"x"',
    b'{"a":"x",}',
    b'{"a":"x"} {"a":"y"}',
    b'{"a":"x"} more',
    b"{'a':'x'}",
    b'/* a */{"a":"x"}',
    b'{"a":NaN}',
    b'{"a":01}',
    b'{"a":"x\ny"}',
    b'{"a":"\xff"}',
    b'{"unread":"\xff","a":"x"}',
    b'{"a":"\xc1\x81"}',
    b'{"unread":"\xc1\x81","a":"x"}',
    b'{"\xc1\x81":1,"a":"x"}',
    b'{"unread":"\xe0\x80\xaf","a":"x"}',
    b'{"unread":"\xed\xa0\x80","a":"x"}',
    b'{"unread":"\xed\xa0\xbd\xed\xb8\x80","a":"x"}',
    b'{"unread":"\xf5\x80\x80\x80","a":"x"}',
    '{"unread":"\ud800","a":"x"}'.encode("utf-16-le", "surrogatepass"),
    b'{"a":' + DEEP + b"}",
    b'{"unread":' + DEEP + b',"a":"x"}',
    b"{" + LONG_NAME + b':1,"a":"x"}',
    b'{"unread":{' + LONG_NAME + b':1},"a":"x"}',
)
"""Bytes that are not a JSON object."""

NUMBERS: Final = (
    (b"0", 0),
    (b"9223372036854775807", 2**63 - 1),
    (b"-9223372036854775808", -(2**63)),
    (b"null", None),
)
"""Values of a bigint column, and what it has."""

NO_NUMBERS: Final = (b"9223372036854775808", b"1.0", b"1e3", b'"1"', b"true", b"[1]")

ORDER: Final = b'{"id":"o1","user":"u","time":"2026-01-07T12:00:00Z","amount":%s}'

AMOUNTS: Final = (
    *(b"0", b"1.5", b"1.50", b"1.500", b"12345678.5", b"1234567890.12", b"12345678901", b"1e3"),
    *(
        b'"2.25"',
        b'"2.25\\n"',
        b'"2.25\\u2028"',
        b"-3",
        b"true",
        b"null",
        b"{}",
        b'"x"',
        b"1,",
        b'1,"amount":2',
        b'1,"note":"\xff"',
        b'1,"note":NaN',
        b'1,"note":' + DEEP,
    ),
)
"""What may stand in the place of its amount."""


ROW: Final = b'{"time":"2026-01-07T12:00:00Z","key1":%s,"key2":"b","key3":"c","indicate":%s}'
ROWS: Final = (
    *(ROW % (b'"a"', number) for number, _ in NUMBERS),
    *(ROW % (b'"a"', value) for value in (*NO_NUMBERS, b"-1", b"NaN")),
    *(
        ROW % (key, b"1")
        for key in (b"null", b"1.50", b"true", b'""', b'"\xff"', b'"a "', b'"a\\t"')
    ),
    *(ROW % (key, b"1") for key in (b'{"q" : [1, 2 ]}', b"[ ]", b'["\\ud800"]', b'[1],"key1":"a"')),
    *(ROW % (key, b"1") for key in (b'"\\ud800","key1":"a"', b'"a","key1":"\\ud800"')),
    *(ROW % (b'"a"', number + b',"indicate":5') for number in (*NO_NUMBERS, b"null", b"1" * 5000)),
    *(ROW % (b'"a"', b'5,"indicate":' + number) for number in (*NO_NUMBERS, b"null")),
    *(ROW[:-1] % (b'"a"', b"1") + b"," + field + b"}" for field in NOT_TOO_MUCH),
    *(ROW % (key, b"1") for key in (b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"')),
    *(text for text in NO_OBJECTS if text is not None),
    ROW[:-1] % (b'"a"', b"1") + b',"unread":NaN}',
    ROW[:-1] % (b'"a"', b"1") + b',"unread":' + DEEP + b"}",
    ROW.replace(b"01-07", b"02-30") % (b'"a"', b"1"),
    ROW.replace(b"00Z", b"00.5Z") % (b'"a"', b"1"),
    ROW.replace(b"00Z", b"00Z\\n") % (b'"a"', b"1"),
    *(ROW % (b'"a"', b"%d" % number) for number in (2**31 - 1, 2**31, -(2**31), -(2**31) - 1)),
)
"""Records of two_sinks, most of which cannot be summed."""


def test_parse_time_returns_what_spark_returns(spark: SparkSession) -> None:
    """Also for texts that do not parse, and for a text that has the slot of another one."""
    texts: list[str | None] = ["", "x", None, "29/Feb/2024:00:00:00 -1400"]
    for day, month, hour in itertools.product((1, 31), MONTHS, (0, 23, 24)):
        texts += [f"{day:02}/{month}/2026:{hour:02}:59:{second} +0130" for second in ("07", "60")]
    rows = spark.createDataFrame([(text,) for text in texts * 2], "text string").repartition(1)
    ours = parse_time(spark, F.col("text"), TIME)
    both = rows.select(
        "text", ours.alias("ours"), F.try_to_timestamp("text", F.lit(TIME)).alias("sparks")
    )
    assert both.where("ours IS NOT NULL").count() > 0
    assert both.where("NOT ours <=> sparks").collect() == []


def parsed(
    spark: SparkSession, texts: list[bytes | None], columns: str
) -> list[tuple[object, ...] | None]:
    """Return what parse_json makes of texts, in one task."""
    rows = spark.createDataFrame([(text,) for text in texts], "value binary").coalesce(1)
    read = rows.select(parse_json(spark, F.col("value"), columns).alias("row")).collect()
    return [None if row["row"] is None else tuple(row["row"]) for row in read]


def test_parse_json_returns_a_value_as_it_is_written(spark: SparkSession) -> None:
    texts = [b'{"unread":[{"a":1}],"a":%s}' % value for value, _ in VALUES]
    assert parsed(spark, [*texts], "a string") == [(text,) for _, text in VALUES]


def test_parse_json_returns_null_for_what_is_no_object(spark: SparkSession) -> None:
    assert parsed(spark, [*NO_OBJECTS], "a string") == [None] * len(NO_OBJECTS)


def test_parse_json_returns_null_for_a_missing_field_and_the_last_of_a_repeated_one(
    spark: SparkSession,
) -> None:
    texts: list[bytes | None] = [b"{}", b'{"A":"x"}', b'{"a":"x","a":"y"}', b'{"a":"x","a":null}']
    assert parsed(spark, texts, "a string") == [(None,), (None,), ("y",), (None,)]
    texts = [b'{"n":%s,"n":7}' % value for value in (*NO_NUMBERS, b"1" * 5000)]
    assert parsed(spark, texts, "n bigint") == [(7,)] * len(texts)
    texts = [b'{"a":"\\ud800","a":"y"}', b'{"a":"y","a":"\\ud800"}']
    assert parsed(spark, texts, "a string") == [("y",), None]


def test_parse_json_reads_an_object_as_deep_and_as_long_as_it_may_be(spark: SparkSession) -> None:
    texts: list[bytes | None] = [b"{" + field + b',"a":"x"}' for field in NOT_TOO_MUCH]
    assert parsed(spark, texts, "a string") == [("x",)] * len(texts)


def test_parse_json_detects_the_encoding_as_python_does(spark: SparkSession) -> None:
    codecs = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be")
    texts = ['{"a":"é"}'.encode(codec) for codec in codecs]
    assert parsed(spark, [*texts], "a string") == [
        tuple(json.loads(text).values()) for text in texts
    ]


def test_parse_json_returns_nested_values_as_they_are_written_in_any_encoding(
    spark: SparkSession,
) -> None:
    codecs = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
    texts = ['{"b":"𝄞", "a": [1.50, {"é":2}] }'.encode(codec) for codec in codecs]
    assert parsed(spark, [*texts], "a string") == [('[1.50, {"é":2}]',)] * len(codecs)


def test_parse_json_has_no_row_for_what_is_no_integer_of_64_bits(spark: SparkSession) -> None:
    texts = [b'{"n":%s,"a":"x"}' % value for value, _ in NUMBERS]
    texts += [b'{"n":%s,"a":"x"}' % value for value in NO_NUMBERS]
    expected = [*((number, "x") for _, number in NUMBERS), *[None] * len(NO_NUMBERS)]
    assert parsed(spark, [*texts], "n bigint, a string") == expected


def test_parse_json_refuses_a_column_of_another_type(spark: SparkSession) -> None:
    with pytest.raises(SettingsInvalid, match="not amount decimal"):
        parse_json(spark, F.col("value"), "id string, amount decimal(12,2)")


def test_without_our_java_classes_parse_json_uses_from_json(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_objects, "has_class", lambda *_: False)
    texts: list[bytes | None] = [b'{"n":7,"a":"x"}', b'{"n":7,"a":"x"', b'{"n":"7"}', None]
    assert parsed(spark, texts, "a string, n bigint") == [("x", 7), None, None, None]


def test_an_order_is_valid_exactly_if_it_is_for_verify(spark: SparkSession) -> None:
    """An amount above ten million that is a number with decimals became a dead letter once."""
    lines = [ORDER % amount for amount in AMOUNTS]
    rows = read_orders(
        spark.createDataFrame([(each,) for each in lines], "value binary").coalesce(1)
    )
    for text, row in zip(lines, rows.select("invalid", "amount").collect(), strict=True):
        order = read_order(text)
        expected = order.amount if isinstance(order, Order) else None
        assert (row.amount if row.invalid is None else None) == expected, text


def test_a_record_of_two_sinks_is_summed_exactly_if_it_is_for_verify(spark: SparkSession) -> None:
    records = spark.createDataFrame([(each,) for each in ROWS], "value binary").coalesce(1)
    read, valid = read_rows(records)
    for text, row in zip(ROWS, read.select(valid.alias("valid"), "row").collect(), strict=True):
        expected = read_row(text)
        if row.valid:
            assert not isinstance(expected, str), text
            assert (*expected[0][1:], expected[1]) == tuple(row.row)[1:], text
        else:
            assert expected == "unparsed", text
