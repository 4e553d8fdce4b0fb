"""The judgement of refused rows: by the columns of the table and the limit of the topic."""

from __future__ import annotations

import pytest

from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate_jobs.verification.limits import Refused, SinkLimits, TopicLimits
from tests.unit.jobs.table_limits import bigint, table_limits, varchar

DECIMAL = Column("d", "decimal(5,2)", Family.DECIMAL, "decimal", precision=5, scale=2)
DATETIME = Column("t", "datetime", Family.DATETIME, "datetime")
TABLE = table_limits(
    varchar("s", 3),
    varchar("l", 3, "latin1"),
    varchar("u", 3, "utf8mb3"),
    bigint("n"),
    DECIMAL,
    DATETIME,
    Column("j", "json", Family.JSON, "json"),
)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"s": "äöü", "n": 1}, Refused.NO),
        ({"s": "abcd"}, Refused.YES),
        ({"s": None}, Refused.YES),
        ({"s": "a\ufffd"}, Refused.YES),
        ({"l": "ä€"}, Refused.NO),
        ({"l": "字"}, Refused.YES),
        ({"u": "字"}, Refused.NO),
        ({"u": "\U0001f600"}, Refused.YES),
        ({"n": 2**63 - 1}, Refused.NO),
        ({"n": 2**63}, Refused.YES),
        ({"d": "999.99"}, Refused.NO),
        ({"d": "1000"}, Refused.YES),
        ({"d": "0.001"}, Refused.YES),
        ({"t": "2026-01-07 12:00:00+00:00"}, Refused.NO),
        ({"t": "253402300800000000 (timestamp[us, tz=UTC])"}, Refused.YES),
        ({"t": None}, Refused.NO),
        ({"j": "{"}, Refused.UNKNOWN),
        ({"j": "{", "s": "abcd"}, Refused.YES),
    ],
)
def test_a_table_refuses_what_its_columns_cannot_store(
    row: dict[str, object], expected: Refused
) -> None:
    limits = SinkLimits(tables={"mysql.t": TABLE})
    assert limits.refuses("mysql.t", [{"key": "k", "value": "v"}, row]) is expected


def test_a_table_refuses_a_row_that_is_longer_than_a_packet() -> None:
    assert TABLE.refuses({"s": "a", "other": "x" * (16 << 20)}) is Refused.YES


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (TopicLimits(300), Refused.YES),
        (TopicLimits(1000), Refused.NO),
        (TopicLimits(1000, compacted=True), Refused.YES),
    ],
)
def test_a_topic_refuses_large_records_and_compacted_ones_without_a_key(
    topic: TopicLimits, expected: Refused
) -> None:
    limits = SinkLimits({"kafka.t": topic})
    assert limits.refuses("kafka.t", [{"key": None, "value": "v" * 100}, {"s": "abcd"}]) is expected


def test_what_is_not_a_sink_of_the_job_refuses_nothing() -> None:
    assert SinkLimits().refuses("mysql.t", [{"s": "abcd"}]) is Refused.NO
