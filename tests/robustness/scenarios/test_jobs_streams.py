"""Each streaming job is killed at a random failpoint and restarted; its own check finds it exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs import kafka_to_kafka, orders, restart_demo, two_sinks, word_count
from sluicegate_jobs.generators import Message, to_topic
from tests.robustness.traffic.packaged_job_harness import JobScene, job_scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

RECORDS = 300
EPOCH_RECORDS = 120
"""Three epochs."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_word_count(services: Services, folder: Path) -> None:
    """Words in any script, empty lines, lines that are not text and overlong words are all counted."""
    played = job_scene(services, folder, word_count.JOB, RECORDS, max_records=EPOCH_RECORDS)
    odd = (b"x" * 300 + b" fits", b"Cafe\xcc\x81 CAFE", b"", None, b"y" * 70_000)
    to_topic(played.settings.kafka, played.settings.source, map(Message, odd))
    played.run_killed(range(3))
    played.finish()
    checked = played.check_exact()
    assert checked["source lines"] == RECORDS + len(odd)
    assert checked["words too long for the table"] == 2
    assert checked["rows in MySQL"] == checked["words"] - 2


def test_kafka_to_kafka(services: Services, folder: Path) -> None:
    """`verify` finds keys, headers, timestamps, tombstones and the order per key preserved."""
    played = job_scene(services, folder, kafka_to_kafka.JOB, RECORDS, max_records=EPOCH_RECORDS)
    played.run_killed(range(3))
    played.finish()
    checked = played.check_exact()
    assert checked["source records"] == RECORDS
    assert checked["records in the sink"] == RECORDS - checked["records that are not text"]
    values = [record.value for record in played.records(played.settings.topic)]
    assert None in values
    assert any(value and "STRASSE" in value.decode() for value in values)


def test_two_sinks(services: Services, folder: Path) -> None:
    """After a kill every decided UUID is delivered once, and the sums are exact."""
    played = job_scene(services, folder, two_sinks.JOB, RECORDS, max_records=EPOCH_RECORDS)
    played.run_killed(range(3))
    played.finish()
    checked = played.check_exact()
    assert checked["source records"] == RECORDS
    assert checked["UUIDs"] == checked["UUIDs that the epoch records decided"] > checked["sums"]


def test_two_sinks_whose_mysql_throws_in_phase_one(services: Services, folder: Path) -> None:
    """Nothing is decided or visible; without the injected error the next run is exact."""
    played = job_scene(services, folder, two_sinks.JOB, RECORDS)
    failed = played.but(fail_mysql="stage").run()
    assert failed.code == 1, failed.log
    assert StoredEpochLog(open_store(played.settings.checkpoint)).newest() is None
    assert played.records(played.settings.topic) == []
    played.finish()
    played.check_exact()


def test_two_sinks_whose_mysql_throws_in_phase_two(services: Services, folder: Path) -> None:
    """The epoch is decided and only Kafka has it; the next run delivers the same UUIDs to MySQL."""
    played = job_scene(services, folder, two_sinks.JOB, RECORDS)
    failed = played.but(fail_mysql="apply").run()
    assert failed.code == 75, failed.log
    assert "Stuck" in failed.log
    delivered = played.records(played.settings.topic)
    assert delivered
    assert rows(services, played) == 0
    ended = played.finish()
    assert ended.epochs("replayed") == [0]
    assert played.records(played.settings.topic) == delivered
    played.check_exact()


def test_orders_stream(services: Services, folder: Path) -> None:
    """After a kill, windows are in both sinks, and late and invalid orders are dead letters."""
    # an epoch judges lateness by the watermark of two epochs earlier, so several epochs are needed
    played = job_scene(services, folder, orders.STREAM_JOB, RECORDS, max_records=60)
    played.run_killed(range(3))
    played.finish()
    checked = played.check_exact()
    assert checked["source records"] == RECORDS
    assert checked["late orders"] > 0
    assert checked["dead letters"] > checked["late orders"]


def test_restart_demo(services: Services, folder: Path) -> None:
    """A supervisor restarts it after each failure and logs the reason; each record is delivered once."""
    played = job_scene(services, folder, restart_demo.JOB, 10, restart_initial_delay_s=0.2)
    ended = played.start(supervised=True).wait()
    assert ended.code == 0, ended.log
    for attempt in (1, 2):
        assert f"attempt {attempt} failed" in ended.log
    assert "the source fails at record 0@4" in ended.log
    assert "attempt 3 failed" not in ended.log
    values = [record.value for record in played.records(played.settings.topic)]
    assert values == [f"record {i}".encode() for i in range(10)]


def rows(services: Services, played: JobScene) -> int:
    """Return the number of rows in the table."""
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {played.settings.table}")
        found = cursor.fetchone()
    return int(found[0]) if found else 0
