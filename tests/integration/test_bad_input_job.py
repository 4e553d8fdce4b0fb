"""User errors about ip_count through the CLI: a clear error, and no row is lost or repeated.

The sinks' own checks are tested in test_kafka_bad_input and test_mysql_bad_input.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.local_services.process import free_ports
from tests.integration.error_messages import assert_driver_error
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_LINES,
    LATE,
    LINES,
    LONG_ADDRESSES,
    UNPARSED,
    Scenario,
    access_lines,
    count_unparsed,
    feed,
    new_scenario,
)
from tests.robustness.traffic.late_lines import possibly_late

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> Scenario:
    """Return a scenario with the default lines."""
    return new_scenario(services, tmp_path)


def check_no_epoch_started(scenario: Scenario) -> None:
    """Assert that no epoch has started, so no sink can have rows."""
    assert scenario.epoch_log().newest() is None
    assert not list((scenario.checkpoint / "offsets").glob("*"))


def execute(services: Services, statement: str) -> None:
    """Run a statement on the database."""
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(statement)


# --- invalid starts -------------------------------------------------------------------------


def test_a_broker_that_is_down_is_named(scenario: Scenario) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    result = scenario.with_settings(kafka=address).run()
    assert_driver_error(result, "SinkUnavailable", address)
    check_no_epoch_started(scenario)


def test_a_database_that_is_down_is_named(scenario: Scenario, services: Services) -> None:
    port = free_ports(1)[0]
    down = services.mysql.url.replace(f":{services.mysql.port}/", f":{port}/")
    result = scenario.with_settings(mysql=down).run()
    assert_driver_error(result, "SinkUnavailable", f"127.0.0.1:{port}", "SLUICEGATE_MYSQL")
    check_no_epoch_started(scenario)


def test_a_wrong_password_names_the_user_only(scenario: Scenario, services: Services) -> None:
    """The error does not show the password."""
    wrong_url = services.mysql.url.replace(services.mysql.password, "opensesame")
    result = scenario.with_settings(mysql=wrong_url).run()
    assert_driver_error(result, "AccessDenied", services.mysql.user)
    assert "opensesame" not in result.log
    check_no_epoch_started(scenario)


@pytest.mark.parametrize("role", ["source", "topic", "dead_letters"])
def test_a_missing_topic_is_named_and_not_created(scenario: Scenario, role: str) -> None:
    """Of each role."""
    result = scenario.with_settings(**{role: "no_such_topic"}).run()
    assert_driver_error(result, "TargetMissing", "no_such_topic")
    assert result.code == 64
    check_no_epoch_started(scenario)


def test_a_missing_table_is_named(scenario: Scenario) -> None:
    result = scenario.with_settings(table="no_such_table").run()
    assert_driver_error(result, "TargetMissing", "no_such_table")
    check_no_epoch_started(scenario)


def test_a_table_whose_columns_do_not_match_is_rejected(
    scenario: Scenario, services: Services
) -> None:
    execute(services, f"ALTER TABLE {scenario.settings.table} DROP COLUMN hits")
    result = scenario.run()
    assert_driver_error(result, "SchemaMismatch", scenario.settings.table, "hits")
    check_no_epoch_started(scenario)


def test_an_apply_timeout_above_the_brokers_longest_transaction_is_rejected(
    scenario: Scenario,
) -> None:
    result = scenario.with_settings(apply_timeout_s=86_400.0).run()
    assert_driver_error(
        result, "TransactionTimeoutInvalid", "transaction.max.timeout.ms", "apply_timeout_s=86400"
    )
    assert result.code == 64
    check_no_epoch_started(scenario)


def test_the_same_checkpoint_works_once_the_cause_is_fixed(scenario: Scenario) -> None:
    """Failed starts leave nothing that disturbs a later start."""
    assert scenario.with_settings(table="no_such_table").run().code == 64
    assert scenario.with_settings(source="no_such_topic").run().code == 64
    result = scenario.run()
    assert result.code == 0, result.log
    scenario.check_exact()


# --- foreign or modified checkpoints -------------------------------------------------------------


def test_the_checkpoint_of_another_job_is_rejected(scenario: Scenario) -> None:
    """Both jobs are named; the other job's checkpoint is unchanged."""
    scenario.checkpoint.mkdir()
    lineage = {"id": "0123456789abcdef", "job": "sessions", "first_epoch": 0}
    (scenario.checkpoint / "lineage.json").write_text(json.dumps(lineage))
    result = scenario.run()
    assert_driver_error(result, "CheckpointOfAnotherJob", "sessions", "ip_count")
    check_no_epoch_started(scenario)


def test_the_checkpoint_of_a_plain_spark_query_is_rejected(scenario: Scenario) -> None:
    scenario.checkpoint.mkdir()
    (scenario.checkpoint / "metadata").write_text('{"id":"5f0a4c2e-9d0d-4c58-8a52-0f3a6e1f7a11"}')
    result = scenario.run()
    assert_driver_error(result, "CheckpointOfAnotherJob", "Sluicegate never ran")
    check_no_epoch_started(scenario)


def test_a_tampered_offset_log_stops_the_job(scenario: Scenario) -> None:
    """An edited offset of a decided epoch stops the job; with the original, the job is exact."""
    assert scenario.run("after-decide@2=kill-group").code == -signal.SIGKILL
    offsets = scenario.checkpoint / "offsets" / "2"
    shutil.copy(offsets, scenario.folder / "original")
    edited = offsets.read_text().splitlines()
    edited[-1] = edited[-1].replace('"0":', '"0":1')
    offsets.write_text("\n".join(edited))
    _remove_checksum(offsets)
    assert_driver_error(scenario.run(), "OffsetLogDiverged", "offsets/2")
    shutil.copy(scenario.folder / "original", offsets)
    result = scenario.run()
    assert result.code == 0, result.log
    scenario.check_exact()


def _remove_checksum(file: Path) -> None:
    """Remove Hadoop's checksum, without which an edited file would not be read."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_one_of_two_drivers_on_a_checkpoint_is_fenced(
    scenario: Scenario, services: Services
) -> None:
    """One of two drivers ends itself with the reason; their combined result is exact."""
    fast_scenario = scenario.with_settings(interval="200 milliseconds", max_records=100_000)
    first = fast_scenario.start()
    first.wait_for("epoch 0 committed")
    second = fast_scenario.start()
    second.wait_for("ip_count started")
    more_lines = access_lines(40 * EPOCH_LINES)[LINES:]
    sent = 0
    while first.process.poll() is None and second.process.poll() is None:
        assert sent < len(more_lines), f"both drivers still run:\n{first.text()}\n{second.text()}"
        feed(services.kafka.bootstrap, fast_scenario.settings.source, more_lines[sent : sent + 50])
        sent += 50
        time.sleep(0.2)  # for many epochs; which driver loses is random
    if first.process.poll() is None:
        first, second = second, first
    result = first.wait()
    second.process.send_signal(signal.SIGTERM)
    second.wait()
    assert_driver_error(result, "Fenced", "driver")
    assert result.code == 65
    scenario.finish()
    unparsed = UNPARSED + count_unparsed(more_lines[:sent])
    late = possibly_late([*access_lines(), *more_lines[:sent]])
    scenario.check_exact(LINES + sent, unparsed=unparsed, late=late)


# --- rows that a sink refuses --------------------------------------------------------------------


def test_rows_that_exceed_a_column_become_dead_letters(
    scenario: Scenario, services: Services
) -> None:
    """Counts whose address does not fit the column become dead letters; none is lost or in one sink only."""
    execute(services, f"ALTER TABLE {scenario.settings.table} MODIFY ip VARCHAR(8) NOT NULL")
    result = scenario.run()
    assert result.code == 0, result.log
    assert scenario.check_exact(refused=LONG_ADDRESSES)["counts that a sink refused"] > 0


def test_rows_that_exceed_the_brokers_limit_become_dead_letters(
    services: Services, tmp_path: Path
) -> None:
    """Counts that exceed the topic's limit become dead letters; none is lost or in one sink only."""
    scenario = new_scenario(services, tmp_path, configs={"topic": {"max.message.bytes": "290"}})
    result = scenario.run()
    assert result.code == 0, result.log
    checked = scenario.check_exact(refused=LONG_ADDRESSES)
    assert checked["counts that a sink refused"] > 0
    assert checked["records in Kafka"] > 0


def test_a_dead_letter_that_exceeds_the_brokers_limit_is_truncated(
    services: Services, tmp_path: Path
) -> None:
    """A dead letter that exceeds its topic's limit is cut until it fits; the line is not lost."""
    lines = access_lines()
    lines[-1] = lines[0].replace(b"GET /0", b"GET /" + b"x" * 50_000)
    scenario = new_scenario(
        services, tmp_path, lines=lines, configs={"dead_letters": {"max.message.bytes": "4000"}}
    )
    result = scenario.with_settings(max_records=EPOCH_LINES).run()
    assert result.code == 0, result.log
    scenario.check_exact(late=LATE + 1)  # the last line is as old as the first
