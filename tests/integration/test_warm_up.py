"""The warm-up of a standby, in a real session; its takeover is in tests/robustness/scenarios."""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from infra.local_services import Services
from sluicegate import epochs
from sluicegate.errors import TargetMissing
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import warm_up
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.query_execution import kafka_options, leaves
from sluicegate.spark.session import all_settings, begin_session, created_session
from sluicegate.spark.warm_up import prepare_standby
from tests.robustness.traffic.long_lived_job import processes
from tests.robustness.traffic.memory_streams import Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_a_query_starts_the_python_workers_before_its_first_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its first epoch would wait for them. Here is no input, so there is no epoch."""
    stream = Stream(spark, tmp_path, "ip string")
    (tmp_path / "source").mkdir()
    writer = epochs(
        stream.rows, sinks=[MemorySink(stream.store("sink"))], name="job", checkpoint=stream.url
    )
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    assert not _workers(jvm)
    for _ in range(2):
        query = writer.start()
        deadline = time.monotonic() + 60
        while len(_workers(jvm)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        query.stop()
    assert len(_workers(jvm)) == 2


def test_a_session_that_was_begun_is_active_in_the_thread_that_needs_it(
    spark: SparkSession,
) -> None:
    def active() -> SparkSession | None:
        begin_session("job")
        created_session("job")
        return SparkSession.getActiveSession()

    with ThreadPoolExecutor(1) as other_thread:  # in this one the fixture's session is active
        assert other_thread.submit(active).result() is spark


def test_compilers_have_a_lower_priority_than_tasks(spark: SparkSession) -> None:
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    nice: dict[str, set[int]] = {}
    for thread in Path(f"/proc/{jvm}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
            name = (thread / "comm").read_text().split()[0]
            nice.setdefault(name, set()).add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice["C1"] == nice["C2"] == {max(10, own)}
    assert nice["java"] == {own}


def _workers(jvm: int) -> list[int]:
    """Return the processes that Spark's daemon in a JVM has forked."""
    daemons = [p.pid for p in processes() if p.parent == jvm]
    return [p.pid for p in processes() if p.parent in daemons]


def test_a_warm_up_touches_neither_the_checkpoint_nor_a_sink(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver before the standby still owns both."""
    stream = Stream(spark, tmp_path, "ip string, at timestamp")
    stream.add([{"ip": "10.0.0.1", "at": "2026-01-07 12:00:00"}])
    sink = MemorySink(stream.store("sink"))
    writer = epochs(stream.rows, sinks=[sink], name="job", checkpoint=stream.url)
    assert prepare_standby(spark, lambda: writer) is writer
    assert not caplog.records
    assert not stream.checkpoint.exists()
    assert not stream.committed_rows("sink")


def test_a_warm_up_loads_a_snapshot_of_state_and_a_changelog(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second query loads what the first one has written, and the third one both."""
    settings = all_settings(spark)
    warm_up.load_state(spark, tmp_path / "state", ["json"])
    files = [path.name for path in (tmp_path / "state" / "state" / "0" / "0").iterdir()]
    assert {"1.zip", "2.changelog", "3.changelog"} <= set(files)
    assert not {"1.changelog", "2.zip"} & set(files)
    assert all_settings(spark) == settings


def test_a_warm_up_finds_the_kafka_sources_of_a_job(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "lines"}
    lines = spark.readStream.format("kafka").options(**options).load().select("offset")
    generated = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().select("value")
    )
    counts = generated.union(lines).groupBy("value").count()
    assert [kafka_options(leaf) for leaf in leaves(counts)] == [None, options]


def test_a_warm_up_runs_the_jobs_own_plan_on_the_last_second_of_its_topics(
    services: Services, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two outputs scan one of the topics, so Spark's offset log has more entries than sources."""
    seen = tmp_path / "seen"

    def note(value: str) -> str:
        with seen.open("a") as file:
            file.write(f"{value}\n")
        return value

    producer = Producer({"bootstrap.servers": services.kafka.bootstrap})
    frames = []
    for topic in ("warm-up-a", "warm-up-b"):
        services.kafka.create_topic(topic)
        producer.produce(topic, f"{topic} old", timestamp=1_700_000_000_000)
        # the clock of the producer is what counts, so this record is never too old
        producer.produce(topic, f"{topic} new", timestamp=int(time.time() * 1000) + 60_000)
        read = spark.readStream.format("kafka").option("subscribe", topic)
        read = read.option("kafka.bootstrap.servers", services.kafka.bootstrap)
        read = read.option("startingOffsets", "earliest")
        text = F.col("value").cast("string")
        frames.append(read.load().select(F.udf(note, useArrow=False)(text).alias("value")))
    assert not producer.flush(30)
    a, b = frames
    outputs = {"a": a.union(b), "counts": a.groupBy("value").count()}
    sinks = [MemorySink(name, of=name) for name in outputs]
    writer = epochs(outputs, sinks=sinks, name="job", checkpoint=str(tmp_path / "checkpoint"))
    assert prepare_standby(spark, lambda: writer) is writer
    assert not caplog.records
    assert set(seen.read_text().splitlines()) == {"warm-up-a new", "warm-up-b new"}


def test_a_warm_up_that_hangs_ends_so_that_the_standby_can_take_over(
    services: Services,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warm_up, "LIMIT_S", 10)
    services.kafka.create_topic("warm-up-hangs")
    producer = Producer({"bootstrap.servers": services.kafka.bootstrap})
    producer.produce("warm-up-hangs", "x", timestamp=int(time.time() * 1000) + 60_000)
    assert not producer.flush(30)

    def wait(offset: int) -> int:
        time.sleep(600)
        return offset

    read = spark.readStream.format("kafka").option("subscribe", "warm-up-hangs")
    read = read.option("kafka.bootstrap.servers", services.kafka.bootstrap)
    rows = read.load().select(F.udf(wait, "long", useArrow=False)("offset").alias("value"))
    sink = MemorySink("sink")
    writer = epochs(rows, sinks=[sink], name="job", checkpoint=str(tmp_path / "checkpoint"))
    assert prepare_standby(spark, lambda: writer) is writer
    assert "did not end within 10 s" in caplog.text


def test_a_standby_waits_though_its_job_cannot_be_built_yet(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka may not reply while a standby starts, and reply when it takes over."""

    def build() -> EpochsWriter:
        raise TargetMissing("no topic", data="nothing was read", do="create it")

    assert prepare_standby(spark, build) is None
    assert "the standby is not warm" in caplog.text


def test_all_settings_are_those_of_spark(spark: SparkSession) -> None:
    assert all_settings(spark) == spark.conf.getAll
