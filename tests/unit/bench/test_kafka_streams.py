"""Kafka Streams runs exactly-once, and commits as often as Flink makes its checkpoints."""

from __future__ import annotations

from pathlib import Path

from tests.bench.flink import job as flink
from tests.bench.flink.program import Flink
from tests.bench.kafka_streams import job
from tests.bench.order import Order
from tests.bench.plan import KAFKA_STREAMS, PASS_THROUGH, SESSION

ORDER = Order(PASS_THROUGH, KAFKA_STREAMS, "host:1", "in", "out", "", "", 10, "available-now")


def test_the_application_is_exactly_once(tmp_path: Path) -> None:
    assert job.settings(ORDER, tmp_path)["processing.guarantee"] == "exactly_once_v2"


def test_records_are_visible_as_soon_as_those_of_flink(tmp_path: Path) -> None:
    assert job.settings(ORDER, tmp_path)["commit.interval.ms"] == "1000"
    assert "execution.checkpointing.interval=1 s" in flink.command(Flink("jars"), ORDER, tmp_path)


def test_the_heap_is_that_of_the_other_contenders(tmp_path: Path) -> None:
    assert f"-Xmx{SESSION['spark.driver.memory']}" in job.command("jars", ORDER, tmp_path)
