"""orders_batch: the next run completes a killed batch, and another run changes nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from infra.local_services import Services
from sluicegate.errors import InputChanged
from sluicegate_jobs import orders
from tests.robustness.traffic.packaged_job_harness import JobScenario, new_job_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

RECORDS = 500

INVALID = RECORDS // 50
"""Records that the generator breaks."""


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> JobScenario:
    """Return a scenario with a folder of orders."""
    source = str(tmp_path / "orders")
    return new_job_scenario(services, tmp_path, orders.BATCH_JOB, RECORDS, source=source)


def test_a_killed_batch_is_completed_once_by_the_next_run(
    services: Services, scenario: JobScenario
) -> None:
    """After a kill and a second run the table is exact; a third run changes nothing, not even a marker."""
    scenario.run_killed(range(1))
    scenario.finish()
    assert scenario.check_exact(dead_letters=INVALID)["lines"] == RECORDS
    assert scenario.check_rows() == {"unparsed": INVALID}
    before = contents_of_sinks(services, scenario)
    repeated = scenario.finish()
    assert "is in every sink already" in repeated.log
    assert contents_of_sinks(services, scenario) == before


def test_new_input_needs_a_new_checkpoint(services: Services, scenario: JobScenario) -> None:
    """A decided batch is applied from its record; the new input is refused, and the two never mix."""
    assert scenario.run("after-decide=kill-group").code < 0
    more_orders = Path(scenario.settings.source) / "more.jsonl"
    more_orders.write_text(
        '{"id": "n1", "user": "zoe", "time": "2026-01-07T12:00:00Z", "amount": 1}\n'
    )
    refused = scenario.run()
    assert refused.code == InputChanged.exit_code, refused.log
    assert "InputChanged: the input of batch orders_batch is not what it was" in refused.log
    more_orders.unlink()
    scenario.check_exact(dead_letters=INVALID)
    more_orders.write_text(
        '{"id": "n1", "user": "zoe", "time": "2026-01-07T12:00:00Z", "amount": 1}\n'
    )
    new_checkpoint = str(scenario.folder / f"checkpoint-{random.randrange(10**6)}")
    assert scenario.with_settings(checkpoint=new_checkpoint).run().code == 0
    users = [row[0] for row in contents_of_sinks(services, scenario)[0]]
    assert "zoe" in users


def contents_of_sinks(services: Services, scenario: JobScenario) -> tuple[list[Any], ...]:
    """Return the rows of the table, the markers and the dead letters."""
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {scenario.settings.table} ORDER BY user")
        table = list(cursor.fetchall())
        cursor.execute("SELECT * FROM sluicegate_markers ORDER BY lineage, sink, part")
        markers = list(cursor.fetchall())
    return table, markers, list(scenario.records(scenario.settings.dead_letters))
