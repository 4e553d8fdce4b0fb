"""Faults during which the job runs on: a stranger finds them on the pages of the console."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import MySQLSink, epochs
from sluicegate.spark.epochs import EpochsWriter
from sluicegate_jobs.ip_count import job as ip_count
from sluicegate_jobs.kafka_source import kafka_source
from sluicegate_jobs.targets import create_table
from sluicegate_jobs.two_sinks import job as two_sinks
from sluicegate_jobs.word_count import job as word_count
from tests.integration.console.conftest import Visit
from tests.integration.console.jobs import Stage, running, sums, zombie
from tests.integration.console.stranger import Answers, Stranger
from tests.integration.mysql_fixtures import MySQL

pytestmark = [
    pytest.mark.integration,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SLOW_MS = 60
"""How long a slow table takes for a row: on a machine that is busy, too, it is what takes longest."""

LATE = 40


def make_slow(stage: Stage, table: str) -> None:
    """Make each row of a table take its time, as a trigger or a server under load does."""
    slow = f"FOR EACH ROW DO SLEEP({SLOW_MS / 1000})"
    MySQL.of(stage.services).execute(f"CREATE TRIGGER {table}_slow BEFORE INSERT ON {table} {slow}")


def finds_it_running(
    visit: Visit,
    fault: str,
    *sinks: str,
    slow: str = "",
    restarted: str = "",
    refused: str = "",
) -> Stranger:
    """Find the job healthy on the start page, and the other answers on its page.

    Without `slow`, no sink bounds the job; without `restarted` or `refused` nothing of that kind is to be
    found.
    """
    given = {"slow": slow, "restarted": restarted, "refused": refused}
    epochs = dict.fromkeys(sinks, None)  # a sink is in doubt for a moment in each epoch
    answers = Answers("running", epochs, **{name: text for name, text in given.items() if text})
    stranger = visit(fault)
    stranger.finds_the_answers(answers)
    return stranger


def test_a_slow_sink_is_named_with_its_share_of_an_epoch(
    stage: Stage, spark: SparkSession, visit: Visit
) -> None:
    settings = stage.two_sinks("slow-sink", max_records=80, apply_timeout_s=60.0)
    make_slow(stage, settings.table)
    stage.send(settings.source, sums(1_000))
    with running(two_sinks.build(spark, settings)):
        stage.await_epochs("slow-sink", 3)
        bound = "Bound by sink mysql.slow_sink: its apply takes"
        sinks = "mysql.slow_sink", "kafka.slow-sink-out"
        stranger = finds_it_running(visit, "slow-sink", *sinks, slow=bound)
        stranger.reads("most of it in write", "#verdict")
        stranger.saves_a_screenshot("slow-sink", height=820)


def test_the_part_with_most_of_the_rows_is_named(
    stage: Stage, spark: SparkSession, visit: Visit
) -> None:
    table = "skewed_key"
    columns = "customer VARCHAR(20) NOT NULL, amount BIGINT NOT NULL, PRIMARY KEY (customer)"
    create_table(stage.services.mysql.url, table, columns)
    make_slow(stage, table)
    names = ("largest" if i % 10 else f"small-{i}" for i in range(1_000))
    stage.send(stage.source("skewed-key", []), (name.encode() for name in names))
    with running(_per_customer(stage, spark, table)):
        stage.await_epochs("skewed-key", 3)
        bound = "Bound by sink mysql.skewed_key: its apply takes"
        stranger = finds_it_running(visit, "skewed-key", "mysql.skewed_key", slow=bound)
        stranger.reads(re.compile(r"Its part \d takes .* its keys are skewed"), "#verdict")
        stranger.reads("More executors would not help", "#verdict")
        stranger.opens(".ribbon a")
        stranger.reads("write mysql.skewed_key part")
        stranger.saves_a_screenshot("skewed-key", height=760)


def _per_customer(stage: Stage, spark: SparkSession, table: str) -> EpochsWriter:
    """Return a job that writes the last amount of each customer, in four parts by customer."""
    services = stage.services
    records = kafka_source(spark, "skewed-key-in", services.kafka.bootstrap, 80)
    amounts = records.select(
        F.col("value").cast("string").alias("customer"), F.col("offset").alias("amount")
    )
    sink = MySQLSink(table, keys=("customer",), parts=4, url=services.mysql.url)
    return epochs(
        amounts,
        name="amounts",
        sinks=[sink],
        checkpoint=str(stage.checkpoints / "skewed-key"),
        trigger="1 second",
    )


def test_poison_rows_are_counted_and_shown(stage: Stage, spark: SparkSession, visit: Visit) -> None:
    settings = stage.two_sinks("poison-rows", max_records=200)
    poison = [b'{"time": "yesterday", "key1": "k1"', b"\xff\xfe not JSON at all"]
    stage.send(settings.source, [*sums(180), *poison * 10])
    with running(two_sinks.build(spark, settings)):
        stage.await_epochs("poison-rows", 0)
        refused = "Dead letters: 20 unparsed in the last"
        sinks = "mysql.poison_rows", "kafka.poison-rows-out"
        stranger = finds_it_running(visit, "poison-rows", *sinks, refused=refused)
        stranger.opens("#samples summary")
        stranger.reads("unparsed: not a JSON object with time", "#samples-content")
        stranger.reads(
            re.compile("yesterday|not JSON at all"), "#samples-content"
        )  # the newest two
        stranger.saves_a_screenshot("poison-rows", from_the="#dead-letters", height=330)


def test_late_rows_are_counted_and_shown(stage: Stage, spark: SparkSession, visit: Visit) -> None:
    settings = stage.ip_count("late-data")
    with running(ip_count.build(spark, settings)):
        for sent, hour in ((100, 12), (200, 14)):
            stage.send(settings.source, _hits(hour, 100))
            stage.await_read("late-data", sent)  # a trigger may come while they are sent
        stage.send(settings.source, _hits(12, LATE))
        refused = f"Dead letters: {LATE} late in the last"
        sinks = "mysql.late_data", "kafka.late-data-out"
        stranger = finds_it_running(visit, "late-data", *sinks, refused=refused)
        stranger.opens("#samples summary")
        stranger.reads("late: the window was closed before the hit arrived", "#samples-content")
        stranger.saves_a_screenshot("late-data", from_the="#dead-letters", height=330)


def _hits(hour: int, count: int) -> list[bytes]:
    lines = (
        f"10.0.0.{i} - - [07/Jan/2026:{hour}:00:{i % 60:02} +0000] "
        f'"GET / HTTP/1.1" 200 5 "-" "curl"'
        for i in range(count)
    )
    return [line.encode() for line in lines]


def test_a_state_that_grows_is_named(stage: Stage, spark: SparkSession, visit: Visit) -> None:
    settings = stage.word_count("state-growing", max_records=100)
    stage.send(settings.source, (f"word{i}".encode() for i in range(600)))
    with running(word_count.build(spark, settings)):
        stage.await_epochs("state-growing", 3)
        stranger = finds_it_running(visit, "state-growing", "mysql.state_growing")
        stranger.reads(re.compile(r"State: \d+ rows after epoch \d, \d+ after epoch 0"), "#signs")
        stranger.reads("It grows", "#signs")
        stranger.saves_a_screenshot("state-growing", height=640)


def test_a_zombie_driver_is_fenced_and_the_job_is_healthy(
    stage: Stage, spark: SparkSession, visit: Visit, tmp_path: Path
) -> None:
    settings = stage.two_sinks("zombie-driver", max_records=50)
    stage.send(settings.source, sums(400))
    with zombie(settings, tmp_path, "after-stage@1=stop-group") as driver:
        driver.wait_stopped()
        with running(two_sinks.build(spark, settings)):
            stage.await_epochs("zombie-driver", 3)
            driver.signal_group(signal.SIGCONT)
            assert driver.wait().code == 65, driver.text()
            fenced = "Fenced, because another driver had taken over"
            sinks = "mysql.zombie_driver", "kafka.zombie-driver-out"
            stranger = finds_it_running(visit, "zombie-driver", *sinks, restarted=fenced)
            stranger.reads(re.compile(r"mysql.zombie_driver\s+\d+\s+has its \d+ rows"))
            stranger.saves_a_screenshot("zombie-driver", height=610)
            stranger.opens("#signs a")
            stranger.reads("Fenced", "details[open] summary")
            stranger.reads("Data", "details[open] dl")
