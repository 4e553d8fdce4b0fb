"""Flink runs with the guarantee that its contender names, on the input and output of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.local_services import MySQLEndpoint
from tests.bench import paced
from tests.bench.flink import job
from tests.bench.flink.program import Flink
from tests.bench.order import Order
from tests.bench.plan import (
    FLINK,
    FLINK_AT_LEAST_ONCE,
    MYSQL_LATENCY,
    ORDERS,
    PASS_THROUGH,
    SESSION,
    WORD_COUNT,
)
from tests.bench.throughput import append_figures


def _order(contender: str) -> Order:
    return Order(PASS_THROUGH, contender, "host:1", "in", "out", "", "", 10, "available-now")


@pytest.mark.parametrize(
    ("contender", "guarantee"),
    [(FLINK, "exactly-once"), (FLINK_AT_LEAST_ONCE, "at-least-once")],
)
def test_the_sink_has_the_guarantee_of_the_contender(contender: str, guarantee: str) -> None:
    _, sink, _ = job.statements(_order(contender))
    assert f"'sink.delivery-guarantee' = '{guarantee}'" in sink


def test_the_heap_is_that_of_the_other_contenders(tmp_path: Path) -> None:
    assert f"-Xmx{SESSION['spark.driver.memory']}" in job.command(
        Flink("jars/*"), _order(FLINK), tmp_path
    )


def test_the_rate_is_that_of_the_middle_80_percent() -> None:
    """Start and end, where a contender warms up or waits, do not count."""
    appends = [0] * 10 + [5000 + 10 * number for number in range(81)] + [90_000] * 9
    assert append_figures(appends)["append_records_s"] == 100.0


def test_the_warm_rate_is_that_of_the_second_half_without_its_end() -> None:
    """Until then the JVMs compile."""
    appends = [1000 * number for number in range(50)]
    appends += [50_000 + 10 * number for number in range(41)] + [90_000] * 9
    assert append_figures(appends)["warm_records_s"] == 100.0


def test_records_that_were_appended_at_once_have_no_rate() -> None:
    assert append_figures([7] * 100) == {}
    assert append_figures([]) == {}


def test_a_running_count_is_exactly_once_and_has_the_updates_of_a_second(tmp_path: Path) -> None:
    order = replace(_order(FLINK), kind=WORD_COUNT, cores=1)
    _, sink, _ = job.statements(order)
    assert "'connector' = 'upsert-kafka'" in sink
    assert "'sink.delivery-guarantee' = 'exactly-once'" in sink
    command = job.command(Flink("jars/*"), order, tmp_path)
    assert "table.exec.mini-batch.allow-latency=1 s" in command
    assert "parallelism.default=1" in command


def test_orders_have_the_window_and_the_lateness_of_the_packaged_job() -> None:
    source, _, insert = job.statements(replace(_order(FLINK), kind=ORDERS))
    assert "INTERVAL '2' SECOND" in source
    assert "INTERVAL '5' SECOND" in insert


def test_a_table_is_written_at_least_as_often_as_checkpoints_are_made(tmp_path: Path) -> None:
    """Otherwise its rows would become visible later than those of the other contenders."""
    mysql = MySQLEndpoint("127.0.0.1", 3306, "me", "secret", "shop")
    order = replace(_order(FLINK), kind=MYSQL_LATENCY, table="seen", trigger="200 milliseconds")
    command = job.command(Flink("jars/*"), order, tmp_path, mysql)
    assert "execution.checkpointing.interval=200 milliseconds" in command
    _, table, insert = job.statements(order, mysql)
    assert "'sink.buffer-flush.interval' = '200 milliseconds'" in table
    assert "'table-name' = 'seen'" in table
    value = paced.value(paced.MEASURED, 7, 123).decode()
    assert (value[:11].strip(), int(value[12:32])) == ("m 000000007", 123)
    assert "SUBSTRING(line, 1, 11), CAST(SUBSTRING(line, 13, 20) AS BIGINT)" in insert
