"""Moves a stopped job to a new checkpoint by a savepoint, as a user does with two commands."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from sluicegate.deployment.environment import APPLY_ONLY, DriverVariable
from sluicegate.errors import EpochUnfinished, SavepointRefused
from sluicegate.failpoints import POINTS, VARIABLE
from sluicegate.savepoints.catalog import Savepoint
from sluicegate.savepoints.restore import restore_savepoint
from sluicegate.savepoints.take import take_savepoint
from sluicegate.settings.epoch import EXACTLY_ONCE
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.ip_count_harness import new_log_file, start
from tests.robustness.traffic.packaged_job_harness import JobScenario

_TIMEOUT_S: Final = 60.0


def moved(scenario: JobScenario, checkpoint: str, dies_at: str) -> JobScenario | None:
    """Seal the checkpoint of a job that does not run, and restore its savepoint into another one.

    If an epoch may not be in every sink, a driver that applies it runs before.

    Args:
        scenario: the job.
        checkpoint: address of the new checkpoint; the savepoint is in a folder next to it.
        dies_at: a failpoint where a command, or the first driver on the new checkpoint, is killed before
            it is repeated; empty for none.

    Returns:
        The job on its new checkpoint; None if it cannot be sealed, because Spark has not committed its
        newest epoch. Then nothing has changed.
    """
    killed = POINTS.get(dies_at, "").partition(":")[0]
    folder, take_dies_at = f"{checkpoint}-savepoints", dies_at if killed == "savepoint" else ""
    savepoint = _sealed(scenario, folder, take_dies_at)
    if savepoint is None:
        _apply_decided(scenario)
        savepoint = _sealed(scenario, folder, take_dies_at)
    if savepoint is None:
        return None
    if killed == "restore":
        log = new_log_file(scenario.folder)
        _kill_at(dies_at, log, "restore", savepoint.url, checkpoint)
    restore_savepoint(open_store(savepoint.url), open_store(checkpoint))
    successor = scenario.with_settings(checkpoint=checkpoint)
    # only exactly-once has markers to take over
    if killed == "takeover" and successor.settings.delivery == EXACTLY_ONCE:
        result = successor.start(f"{dies_at}=kill-group").wait()
        assert result.code == -signal.SIGKILL, result.log
    return successor


def _sealed(scenario: JobScenario, folder: str, dies_at: str) -> Savepoint | None:
    """Take a savepoint that seals the checkpoint; return None if that is refused."""
    checkpoint = str(scenario.settings.checkpoint)
    if dies_at:
        log = new_log_file(scenario.folder)
        _kill_at(dies_at, log, "take", checkpoint, folder, "--seal")
    try:
        return take_savepoint(open_store(checkpoint), folder, seal=True)
    except (EpochUnfinished, SavepointRefused):
        return None


def _apply_decided(scenario: JobScenario) -> None:
    """Run a driver that applies the newest decision and starts no query."""
    result = scenario.start(env={DriverVariable.MODE: APPLY_ONLY}).wait()
    assert result.code == 0, result.log


def _kill_at(point: str, log: Path, *arguments: str) -> None:
    """Run `sluicegate savepoint` until it is killed at a failpoint, or refuses."""
    command = ["sluicegate.cli", "savepoint", *arguments]
    result = start(command, log, {VARIABLE: f"{point}=kill-self"}).wait(_TIMEOUT_S)
    refused = any(error.__name__ in result.log for error in (EpochUnfinished, SavepointRefused))
    assert result.code == -signal.SIGKILL or (refused and result.code > 0), result
