"""The lag of a running job, as its metrics and Kafka's own tools show it.

One job reads a topic in three drivers: the first one pauses after an epoch and stops with records left,
the second one catches up, the third one finds nothing new. Between them somebody resets the consumer group.
"""

from __future__ import annotations

import logging
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession

from infra.local_services import Services
from infra.local_services.endpoints import KafkaEndpoint
from infra.local_services.process import free_ports
from infra.preflight import java_command
from infra.toolchain import maven
from sluicegate import EpochSettings, epochs
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.sinks.kafka.connection import Deadline
from sluicegate.sinks.kafka.errors import TRANSIENT, error_of
from sluicegate.sinks.memory import MemorySink, committed
from sluicegate.spark.query import EpochsQuery
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

RECORDS: Final = 25
OF_AN_EPOCH: Final = 10
DEADLINE_S: Final = 60.0

YEARS: Final = "24000 hours"
"""An interval that does not end: Spark aligns intervals to 1970, so an hour may end any moment."""

HOUR_MS: Final = 3_600_000

_GROUPS_TOOL: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

Samples = Mapping[str, float]
"""Values by name, and by those of `_LABELS` that there are."""

_LABELS: Final = ("step", "sink", "part")


def new_topic(kafka: KafkaEndpoint, records: int, partitions: int) -> str:
    """Return a topic with the numbers below `records`, each in the next partition."""
    topic = f"source-offsets-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(records):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(30) == 0
    return topic


def read_numbers(
    spark: SparkSession, kafka: KafkaEndpoint, topic: str, of_an_epoch: int
) -> DataFrame:
    """Return the numbers of a topic as column `n`."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", of_an_epoch)
        .load()
        .selectExpr("cast(cast(value as string) as int) as n")
    )


class Job:
    """A job that copies a topic of two partitions into two stores in memory, by two outputs."""

    def __init__(self, spark: SparkSession, kafka: KafkaEndpoint, folder: Path) -> None:
        self.name = new_topic(kafka, RECORDS, 2)
        self.group = f"sluicegate.{self.name}"
        self._spark, self._kafka, self._checkpoint = spark, kafka, folder / "checkpoint"

    def start(self, settings: EpochSettings) -> EpochsQuery:
        rows = read_numbers(self._spark, self._kafka, self.name, OF_AN_EPOCH)
        return epochs(
            {"even": rows.where("n % 2 = 0"), "odd": rows.where("n % 2 = 1")},
            sinks=[MemorySink(f"{self.name}.{of}", id=of, of=of) for of in ("even", "odd")],
            name=self.name,
            checkpoint=str(self._checkpoint),
            settings=settings,
        ).start()

    @contextmanager
    def running(self, interval: str, pause_ms: int = 0) -> Iterator[tuple[EpochsQuery, int]]:
        """Yield a driver and the port of its metrics; it stops at the end of the block."""
        (port,) = free_ports(1)
        settings = EpochSettings(interval=interval, min_pause_ms=pause_ms, metrics_port=port)
        query = self.start(settings)
        try:
            yield query, port
        finally:
            query.stop()

    def values(self) -> list[int]:
        rows = [*committed(f"{self.name}.even"), *committed(f"{self.name}.odd")]
        return sorted(row["n"] for row in rows)

    def positions(self) -> list[tuple[int, int]]:
        """Return the group's offset, negative without one, and the end of each partition."""
        with closing(self.consumer()) as consumer:
            ends = [consumer.get_watermark_offsets(at, timeout=30)[1] for at in self._at()]
            deadline = Deadline(DEADLINE_S)
            while True:
                try:
                    found = consumer.committed(self._at(), timeout=30)
                except KafkaException as raised:  # a new broker first creates its offsets topic
                    if error_of(raised).name() not in TRANSIENT or deadline.passed():
                        raise
                    time.sleep(0.1)
                    continue
                return [(at.offset, end) for at, end in zip(found, ends, strict=True)]

    def lag(self) -> int | None:
        """Return the group's lag, None without an offset of each partition."""
        positions = self.positions()
        if any(offset < 0 for offset, _ in positions):
            return None
        return sum(end - offset for offset, end in positions)

    def lag_in_tool(self) -> int:
        """Return the sum of the lags that `kafka-consumer-groups.sh --describe` prints."""
        classes = f"{maven.fetch('kafka')}/*"
        java = [java_command(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classes]
        of_group = ["--bootstrap-server", self._kafka.bootstrap, "--group", self.group]
        printed = subprocess.run(
            [*java, _GROUPS_TOOL, *of_group, "--describe"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=2 * DEADLINE_S,
        ).stdout
        heading, *rows = [line.split() for line in printed.splitlines() if len(line.split()) > 1]
        assert len(rows) == len(self._at()), printed
        return sum(int(row[heading.index("LAG")]) for row in rows)

    def reset(self, offset: int) -> None:
        """Set the group's offsets, as `kafka-consumer-groups.sh --reset-offsets` does."""
        with closing(self.consumer()) as consumer:
            consumer.commit(offsets=self._at(offset), asynchronous=False)

    def consumer(self) -> Consumer:
        """Return a consumer of the group, which only joins it by a subscription.

        librdkafka's admin client ends the process if it asks for offsets of a group while the
        coordinator of the group moves.
        """
        group = {"group.id": self.group, "enable.auto.commit": False}
        return Consumer({"bootstrap.servers": self._kafka.bootstrap, **group})

    def _at(self, offset: int = 0) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition, offset) for partition in (0, 1)]


def scrape(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    return {
        " ".join([sample.name, *filter(None, map(sample.labels.get, _LABELS))]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def wait_until(query: EpochsQuery, condition: Callable[[], bool]) -> None:
    deadline = Deadline(DEADLINE_S)
    while not condition():
        assert not deadline.passed()
        assert not query.await_end(0.05)


@dataclass(frozen=True)
class Seen:
    """What was seen of the three drivers."""

    backlog: Samples
    backlog_in_tool: int
    caught_up: Samples
    caught_up_in_tool: int
    idle_of_group: int | None
    values: list[int]


@pytest.fixture(scope="module")
def seen(spark: SparkSession, services: Services, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    job = Job(spark, services.kafka, tmp_path_factory.mktemp("offsets"))
    with job.running(YEARS, pause_ms=HOUR_MS) as (query, port):
        wait_until(query, lambda: job.lag() is not None)
        backlog, backlog_in_tool = scrape(port), job.lag_in_tool()
    job.reset(1)
    with job.running(YEARS) as (query, port):
        wait_until(query, lambda: scrape(port).get("sluicegate_source_lag_records") == 0)
        caught_up = scrape(port)
    caught_up_in_tool = job.lag_in_tool()
    job.reset(1)
    with job.running("100 milliseconds") as (query, _):
        wait_until(query, lambda: job.lag() == 0)
    return Seen(backlog, backlog_in_tool, caught_up, caught_up_in_tool, job.lag(), job.values())


def test_a_backlog_is_the_same_in_kafkas_tool_and_in_the_metric(seen: Seen) -> None:
    """Also where two outputs scan the source."""
    lag = seen.backlog["sluicegate_source_lag_records"]
    assert lag == seen.backlog_in_tool
    assert lag == RECORDS - seen.backlog["sluicegate_rows_in_total"] > 0


def test_a_job_that_has_caught_up_and_ended_has_no_lag_in_either(seen: Seen) -> None:
    assert seen.caught_up["sluicegate_source_lag_records"] == 0
    assert seen.caught_up_in_tool == 0


def test_a_job_that_is_behind_does_not_wait_for_its_trigger(seen: Seen) -> None:
    """It would read the records of one epoch in each interval, here of years."""
    assert seen.caught_up["sluicegate_epoch_applied"] == (RECORDS - 1) // OF_AN_EPOCH


def test_a_backlog_has_an_age_until_it_is_read(seen: Seen) -> None:
    assert 0 < seen.backlog["sluicegate_source_lag_seconds"] < 600
    assert seen.caught_up["sluicegate_source_lag_seconds"] == 0


def test_a_driver_that_finds_nothing_new_commits_where_the_job_stands(seen: Seen) -> None:
    """The driver before it may have been killed between an epoch and the commit of its offsets."""
    assert seen.idle_of_group == 0


def test_a_reset_of_the_group_changes_nothing_of_what_is_read(seen: Seen) -> None:
    assert seen.values == list(range(RECORDS))


def test_metrics_of_a_running_query_are_those_of_its_epochs(seen: Seen) -> None:
    first, second = seen.backlog, seen.caught_up
    assert (first["sluicegate_epoch_decided"], first["sluicegate_epoch_applied"]) == (0, 0)
    assert second["sluicegate_epoch_applied"] > 0
    assert first["sluicegate_rows_in_total"] + second["sluicegate_rows_in_total"] == RECORDS
    for sink, rows in (("even", RECORDS - RECORDS // 2), ("odd", RECORDS // 2)):
        name = f"sluicegate_sink_rows_total {sink}"
        assert first[name] + second[name] == rows
        assert first[f"sluicegate_epoch_step_seconds_count apply {sink}"] == 1
        assert first[f"sluicegate_apply_tries_total {sink}"] == 1
        assert first[f"sluicegate_sink_step_seconds_count commit {sink}"] == 1
        assert first[f"sluicegate_staged_bytes_total {sink}"] > 0
    for part in ("store", "sinks", "recovery", "query", "first-epoch"):
        assert 0 <= first[f"sluicegate_start_seconds {part}"] < 600
    assert first["sluicegate_epoch_seconds_count"] == 1
    assert "sluicegate_epoch_in_doubt_timestamp_seconds" not in first
    assert 0 <= time.time() - first["sluicegate_query_progress_timestamp_seconds"] < 600


def test_a_group_in_use_by_a_consumer_is_a_warning(
    spark: SparkSession, services: Services, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job ends as without it, and the consumer's group has no offsets of the job."""
    job = Job(spark, services.kafka, tmp_path)
    with closing(job.consumer()) as consumer:
        consumer.subscribe([job.name])
        deadline = Deadline(DEADLINE_S)
        while not consumer.assignment():
            assert not deadline.passed()
            consumer.poll(0.1)
        with caplog.at_level(logging.WARNING, "sluicegate.offsets"):
            job.start(EpochSettings(interval=AVAILABLE_NOW)).await_end()
        assert all(offset < 0 for offset, _ in job.positions())
    (warning,) = [r.getMessage() for r in caplog.records if r.name == "sluicegate.offsets"]
    assert "(UnknownMemberIdException)" in warning
    assert "stop the consumers that have joined the group" in warning
    assert job.values() == list(range(RECORDS))


@pytest.mark.parametrize(
    ("state", "tasks"), [([], [5, 2]), (["n"], [5, 5])], ids=["stateless", "with-state"]
)
def test_partitions_with_few_rows_share_a_task_for_each_core_if_the_plan_has_no_state(
    spark: SparkSession, services: Services, tmp_path: Path, state: list[str], tasks: list[int]
) -> None:
    """From the second epoch of a driver on: before, nobody knows how many rows a partition has."""
    topic = new_topic(services.kafka, 200, 5)
    rows = read_numbers(spark, services.kafka, topic, 100)
    outputs = {"out": rows.dropDuplicates(state).repartition(5) if state else rows}
    assert tasks_of_epochs(outputs, topic, tmp_path) == tasks
    assert sorted(row["n"] for row in committed(f"{topic}.out")) == [*range(200)]


def test_a_partition_that_two_outputs_read_counts_for_each_of_them(
    spark: SparkSession, services: Services, tmp_path: Path
) -> None:
    """Two partitions are four scans then, which share the tasks of two cores."""
    topic = new_topic(services.kafka, 200, 2)
    rows = read_numbers(spark, services.kafka, topic, 100)
    assert tasks_of_epochs({"one": rows, "two": rows}, topic, tmp_path) == [4, 2]


def tasks_of_epochs(outputs: Mapping[str, DataFrame], name: str, folder: Path) -> list[int]:
    """Run a job with a store in memory for each output; return how many tasks have staged each epoch."""
    checkpoint = str(folder / "checkpoint")
    epochs(
        outputs,
        sinks=[MemorySink(f"{name}.{of}", id=of, of=of) for of in outputs],
        name=name,
        checkpoint=checkpoint,
        settings=EpochSettings(interval=AVAILABLE_NOW),
    ).start().await_end()
    log = StoredEpochLog(open_store(checkpoint))
    records = [record for epoch in log.decided() if (record := log.read(epoch))]
    return [len({chunk.order[0] for chunk in record.chunks}) for record in records]
