"""Each streaming job is killed at a random failpoint and restarted; its own check finds it exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs import kafka_to_kafka, orders, restart_demo, two_sinks, word_count
from sluicegate_jobs.generators import Message, to_topic
from tests.robustness.traffic.packaged_job_harness import JobScenario, new_job_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

RECORDS = 300
EPOCH_RECORDS = 120
"""Three epochs."""

INVALID = RECORDS // 50
"""Records that the generators break."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_word_count_counts_unusual_lines_exactly(services: Services, folder: Path) -> None:
    """Words in any script, empty lines, lines that are not text, and overlong words."""
    scenario = new_job_scenario(
        services, folder, word_count.JOB, RECORDS, max_records=EPOCH_RECORDS
    )
    unusual_lines = (b"x" * 300 + b" fits", b"Cafe\xcc\x81 CAFE", b"", None, b"y" * 70_000)
    to_topic(scenario.settings.kafka, scenario.settings.source, map(Message, unusual_lines))
    scenario.run_killed(range(3))
    scenario.finish()
    checked = scenario.check_exact(dead_letters=INVALID + 1 + 2)
    assert checked["source lines"] == RECORDS + len(unusual_lines)
    assert checked["words too long for the table"] == 2
    assert checked["rows in MySQL"] == checked["words"] - 2
    assert scenario.check_rows() == {"unparsed": INVALID, "empty": 1, "refused": 2}


def test_kafka_to_kafka_preserves_every_part_of_a_record(services: Services, folder: Path) -> None:
    """`verify` finds keys, headers, timestamps, tombstones and the order per key preserved."""
    scenario = new_job_scenario(
        services, folder, kafka_to_kafka.JOB, RECORDS, max_records=EPOCH_RECORDS
    )
    scenario.run_killed(range(3))
    scenario.finish()
    checked = scenario.check_exact(dead_letters=INVALID)
    assert checked["source records"] == RECORDS
    assert checked["records in the sink"] == RECORDS - checked["records that are not text"]
    values = [record.value for record in scenario.records(scenario.settings.topic)]
    assert None in values
    assert any(value and "STRASSE" in value.decode() for value in values)
    assert scenario.check_rows() == {"unparsed": INVALID}


def test_two_sinks_deliver_the_decided_uuids_once(services: Services, folder: Path) -> None:
    """After a kill every decided UUID is delivered once, and the sums are exact."""
    scenario = new_job_scenario(services, folder, two_sinks.JOB, RECORDS, max_records=EPOCH_RECORDS)
    scenario.run_killed(range(3))
    scenario.finish()
    checked = scenario.check_exact(dead_letters=INVALID)
    assert checked["source records"] == RECORDS
    assert checked["UUIDs"] == checked["UUIDs that the epoch records decided"] > checked["sums"]
    assert scenario.check_rows() == {"unparsed": INVALID}


def test_two_sinks_decide_nothing_if_mysql_fails_while_staging(
    services: Services, folder: Path
) -> None:
    """Nothing is decided or visible; without the injected error the next run is exact."""
    scenario = new_job_scenario(services, folder, two_sinks.JOB, RECORDS)
    failed = scenario.with_settings(fail_mysql="stage").run()
    assert failed.code == 1, failed.log
    assert StoredEpochLog(open_store(scenario.settings.checkpoint)).newest() is None
    assert scenario.records(scenario.settings.topic) == []
    scenario.finish()
    scenario.check_exact(dead_letters=INVALID)


def test_two_sinks_redeliver_the_same_uuids_if_mysql_fails_while_applying(
    services: Services, folder: Path
) -> None:
    """The epoch is decided and only Kafka has it; the next run delivers the same UUIDs to MySQL."""
    scenario = new_job_scenario(services, folder, two_sinks.JOB, RECORDS)
    failed = scenario.with_settings(fail_mysql="apply").run()
    assert failed.code == 75, failed.log
    assert "Stuck" in failed.log
    delivered = scenario.records(scenario.settings.topic)
    assert delivered
    assert row_count(services, scenario) == 0
    result = scenario.finish()
    assert result.epochs("replayed") == [0]
    assert scenario.records(scenario.settings.topic) == delivered
    scenario.check_exact(dead_letters=INVALID)


def test_orders_stream_counts_late_and_invalid_orders(services: Services, folder: Path) -> None:
    """After a kill, windows are in both sinks, and late and invalid orders are dead letters."""
    # an epoch judges lateness by the watermark of two epochs earlier, so several epochs are needed
    scenario = new_job_scenario(services, folder, orders.STREAM_JOB, RECORDS, max_records=60)
    scenario.run_killed(range(3))
    scenario.finish()
    checked = scenario.check_exact(dead_letters=None)
    assert checked["source records"] == RECORDS
    late = checked["late orders"]  # depends on which records an epoch reads
    assert 0 < late == checked["dead letters"] - INVALID
    assert scenario.check_rows(skew=60) == {"unparsed": INVALID, "late": late}


def test_restart_demo_is_restarted_until_each_record_is_delivered_once(
    services: Services, folder: Path
) -> None:
    """A supervisor restarts it after each failure and logs the reason; each record is delivered once."""
    scenario = new_job_scenario(services, folder, restart_demo.JOB, 10, restart_initial_delay_s=0.2)
    result = scenario.start(supervised=True).wait()
    assert result.code == 0, result.log
    for attempt in (1, 2):
        assert f"attempt {attempt} failed" in result.log
    assert "the source fails at record 0@4" in result.log
    assert "attempt 3 failed" not in result.log
    values = [record.value for record in scenario.records(scenario.settings.topic)]
    assert values == [f"record {i}".encode() for i in range(10)]


def row_count(services: Services, scenario: JobScenario) -> int:
    """Return the number of rows in the table."""
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {scenario.settings.table}")
        row = cursor.fetchone()
    return int(row[0]) if row else 0
