"""MySQL fails over to a replica that lacks the last epoch: the job applies it again and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pymysql.cursors import Cursor

from infra.local_services import Services
from sluicegate.sinks.mysql.writer import MARKERS
from sluicegate_jobs import two_sinks
from tests.robustness.traffic.packaged_job_harness import JobScenario, new_job_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

RECORDS = 100
"""Of an epoch."""

INVALID = RECORDS // 50
"""Records of an epoch that the generator breaks."""


@pytest.fixture
def mysql(services: Services) -> Iterator[Cursor]:
    with services.mysql.connect(autocommit=True) as connection, connection.cursor() as cursor:
        yield cursor


def run_epoch(scenario: JobScenario, seed: int) -> str:
    """Let a driver read more records, in one epoch; return its log."""
    assert scenario.job.generate is not None
    scenario.job.generate(scenario.settings, RECORDS, seed)
    return scenario.finish().log


def marker(mysql: Cursor, sink: str) -> tuple[int, str]:
    mysql.execute(f"SELECT epoch, attempt FROM {MARKERS} WHERE sink = %s", [sink])
    ((epoch, attempt),) = mysql.fetchall()
    return epoch, attempt


def test_an_epoch_that_a_failover_lost_is_applied_again_before_the_next(
    services: Services, tmp_path: Path, mysql: Cursor
) -> None:
    """The table adds what it gets: a lost epoch shows as well as a repeated one. Kafka gets it once."""
    scenario = new_job_scenario(services, tmp_path, two_sinks.JOB, 0)
    table, sink = scenario.settings.table, f"mysql.{scenario.settings.table}"
    run_epoch(scenario, 1)
    replica = marker(mysql, sink)
    mysql.execute(f"CREATE TABLE {table}_replica AS SELECT * FROM {table}")
    run_epoch(scenario, 2)
    assert (replica[0], marker(mysql, sink)[0]) == (0, 1)

    mysql.execute(f"DELETE FROM {table}")
    mysql.execute(f"INSERT INTO {table} SELECT * FROM {table}_replica")
    mysql.execute(
        f"UPDATE {MARKERS} SET epoch = %s, attempt = %s WHERE sink = %s", [*replica, sink]
    )

    assert "the epochs that it lost are applied again" in run_epoch(scenario, 3)
    assert marker(mysql, sink)[0] == 2
    checked = scenario.check_exact(dead_letters=3 * INVALID)
    assert checked["source records"] == 3 * RECORDS
    assert checked["UUIDs"] == checked["UUIDs that the epoch records decided"]
    assert scenario.check_rows() == {"unparsed": 3 * INVALID}
