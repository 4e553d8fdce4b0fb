"""A savepoint moves a running job with Kafka and MySQL; every row is delivered exactly once."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infra.local_services import Services
from sluicegate.cli.app import app
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.ip_count_harness import (
    DRIVER_TIMEOUT_S,
    EPOCH_LINES,
    Scenario,
    access_lines,
    feed,
    new_scenario,
)
from tests.robustness.traffic.late_lines import possibly_late

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # four drivers, one after another
]

LINES = access_lines()
HALF = 600


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> Scenario:
    """Return a scenario with the first half of the lines, whose job runs until it is stopped."""
    return new_scenario(services, tmp_path, lines=LINES[:HALF], interval="0 seconds")


def run_cli(*arguments: object) -> Result:
    """Run the command as a user does."""
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_a_running_job_is_moved_exactly_once_and_its_parent_stays_sealed(
    scenario: Scenario,
) -> None:
    """Epochs overlap, so the last one is not yet applied when the stop is requested."""
    scenario = scenario.with_settings(overlap=True)
    folder = scenario.folder / "savepoints"
    driver = scenario.start(supervised=True)
    driver.wait_for("epoch 1 committed")
    feeder = threading.Thread(  # more input arrives during the stop
        target=feed,
        args=(scenario.settings.kafka, scenario.settings.source, LINES[HALF:]),
        kwargs={"in_step": True},
    )
    feeder.start()
    stopped = run_cli(
        "stop", scenario.checkpoint, "--savepoint", folder, "--timeout", DRIVER_TIMEOUT_S
    )
    feeder.join()
    assert stopped.exit_code == 0, stopped.output + driver.text()
    result = driver.wait()
    assert result.code == 0, result.log
    listing = run_cli("savepoint", "list", folder).output
    assert "moves the job" in listing

    parent = scenario.run()
    assert parent.code == 65, parent.log
    assert "Sealed: " in parent.log

    moved = scenario.with_settings(
        checkpoint=str(scenario.folder / "moved"), interval="available-now"
    )
    restored = run_cli("savepoint", "restore", listing.split()[0], moved.checkpoint)
    assert restored.exit_code == 0, restored.output
    moved_result = moved.run()
    assert moved_result.code == 0, moved_result.log
    late = possibly_late(LINES, epoch_lines=EPOCH_LINES)
    checked = moved.check_exact(len(LINES), late=late)
    assert "pruned epochs, whose records are not counted" not in checked
    lineage = read_lineage(open_store(str(moved.checkpoint)))
    assert lineage is not None
    assert moved_result.epochs("committed")[0] == lineage.first_epoch


def test_a_killed_moved_job_is_exact_and_a_second_successor_is_fenced(
    scenario: Scenario,
) -> None:
    """It dies after it has taken over the parent's sinks, when one sink has its first epoch.

    The second successor starts from a copy of the savepoint, which has no trace of the first; Kafka has.
    """
    finite = scenario.with_settings(interval="available-now")
    assert finite.run().code == 0
    savepoint = run_cli(
        "savepoint", "take", finite.checkpoint, scenario.folder / "savepoints", "--seal"
    )
    assert savepoint.exit_code == 0, savepoint.output
    copied = scenario.folder / "copied"
    shutil.copytree(savepoint.output.split()[0], copied)

    moved = finite.with_settings(checkpoint=str(scenario.folder / "moved"))
    assert (
        run_cli("savepoint", "restore", savepoint.output.split()[0], moved.checkpoint).exit_code
        == 0
    )
    feed(scenario.settings.kafka, scenario.settings.source, LINES[HALF:])
    sink = moved.sinks["kafka"]
    killed = moved.run(f"after-apply:{sink}=kill-group~{scenario.folder / 'once'}")
    assert killed.code == -9, killed.log

    second = finite.with_settings(checkpoint=str(scenario.folder / "second"))
    assert run_cli("savepoint", "restore", copied, second.checkpoint).exit_code == 0
    refused = second.run()
    assert refused.code == 65, refused.log
    assert "taken over by lineage" in refused.log

    assert moved.run().code == 0
    moved.check_exact(len(LINES))
