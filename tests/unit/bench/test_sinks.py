"""Each sink that a contender writes is read back."""

from __future__ import annotations

import pytest

from tests.bench.order import Order
from tests.bench.plan import (
    ADD,
    BARE,
    FLINK,
    HEAP,
    IP_COUNT,
    NAIVE,
    NOOP,
    ORDERS,
    PASS_THROUGH,
    SLUICEGATE,
    SPARK,
    SPARK_JDBC,
    UPSERT,
    WORD_COUNT,
)
from tests.bench.sinks import writes_table, writes_topic

TOPIC, TABLE = {"topic"}, {"table"}


@pytest.mark.parametrize(
    ("kind", "contender", "written"),
    [
        (PASS_THROUGH, SLUICEGATE, TOPIC),
        (IP_COUNT, SLUICEGATE, TOPIC | TABLE),
        (IP_COUNT, NAIVE, TOPIC | TABLE),
        (IP_COUNT, SPARK, TOPIC),
        (IP_COUNT, NOOP, set()),
        (WORD_COUNT, SLUICEGATE, TABLE),
        (WORD_COUNT, BARE, TOPIC),
        (WORD_COUNT, HEAP, TOPIC),
        (WORD_COUNT, FLINK, TOPIC),
        (ORDERS, BARE, TOPIC | TABLE),
        (ORDERS, FLINK, TOPIC),
        (UPSERT, SPARK_JDBC, TABLE),
        (ADD, SLUICEGATE, TABLE),
    ],
)
def test_what_a_contender_writes_is_read_back(kind: str, contender: str, written: set[str]) -> None:
    order = Order(kind, contender, "host:1", "in", "out", "dead", "t", 10, "available-now")
    found = (TOPIC if writes_topic(order) else set()) | (TABLE if writes_table(order) else set())
    assert found == written
