"""orders_batch: the next run completes a killed batch, and another run changes nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from infra.local_services import Services
from sluicegate.errors import InputChanged
from sluicegate_jobs import orders
from tests.robustness.traffic.packaged_job_harness import JobScene, job_scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

RECORDS = 500


@pytest.fixture
def played(services: Services, tmp_path: Path) -> JobScene:
    """Return a scene with a folder of orders."""
    source = str(tmp_path / "orders")
    return job_scene(services, tmp_path, orders.BATCH_JOB, RECORDS, source=source)


def test_killed_and_run_again(services: Services, played: JobScene) -> None:
    """After a kill and a second run the table is exact; a third run changes nothing, not even a marker."""
    played.run_killed(range(1))
    played.finish()
    assert played.check_exact()["lines"] == RECORDS
    before = everything(services, played)
    again = played.finish()
    assert "is in every sink already" in again.log
    assert everything(services, played) == before


def test_another_input_needs_another_checkpoint(services: Services, played: JobScene) -> None:
    """A decided batch is applied from its record; the new input is refused, and the two never mix."""
    assert played.run("after-decide=kill-group").code < 0
    more = Path(played.settings.source) / "more.jsonl"
    more.write_text('{"id": "n1", "user": "zoe", "time": "2026-01-07T12:00:00Z", "amount": 1}\n')
    refused = played.run()
    assert refused.code == InputChanged.exit_code, refused.log
    assert "InputChanged: the input of batch orders_batch is not what it was" in refused.log
    more.unlink()
    played.check_exact()
    more.write_text('{"id": "n1", "user": "zoe", "time": "2026-01-07T12:00:00Z", "amount": 1}\n')
    fresh = str(played.folder / f"checkpoint-{random.randrange(10**6)}")
    assert played.but(checkpoint=fresh).run().code == 0
    users = [row[0] for row in everything(services, played)[0]]
    assert "zoe" in users


def everything(services: Services, played: JobScene) -> tuple[list[Any], ...]:
    """Return the rows of the table, the markers and the dead letters."""
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {played.settings.table} ORDER BY user")
        table = list(cursor.fetchall())
        cursor.execute("SELECT * FROM sluicegate_markers ORDER BY lineage, sink, part")
        markers = list(cursor.fetchall())
    return table, markers, list(played.records(played.settings.dead_letters))
