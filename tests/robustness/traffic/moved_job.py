"""Moves a stopped job to a new checkpoint by a savepoint, as a user does with two commands."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Final

from sluicegate.errors import EpochUnfinished, SavepointRefused
from sluicegate.failpoints import POINTS, VARIABLE
from sluicegate.savepoints.restore import restore_savepoint
from sluicegate.savepoints.take import take_savepoint
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.ip_count_harness import environment
from tests.robustness.traffic.packaged_job_harness import JobScenario

_TIMEOUT_S: Final = 60.0


def moved(scenario: JobScenario, checkpoint: str, dies_at: str) -> JobScenario | None:
    """Seal the checkpoint of a job that does not run, and restore its savepoint into another one.

    Args:
        scenario: the job.
        checkpoint: address of the new checkpoint; the savepoint is in a folder beside it.
        dies_at: a failpoint where a command is killed before it is repeated; empty for none.

    Returns:
        The job on its new checkpoint; None if it has no complete epoch yet, or if an epoch may not be in
        every sink: then nothing was sealed.
    """
    before, folder = str(scenario.settings.checkpoint), f"{checkpoint}-savepoints"
    restores = POINTS.get(dies_at, "").startswith("restore:")
    if dies_at and not restores:
        _kill_at(dies_at, "take", before, folder, "--seal")
    try:
        savepoint = take_savepoint(open_store(before), folder, seal=True)
    except (EpochUnfinished, SavepointRefused):
        return None
    if restores:
        _kill_at(dies_at, "restore", savepoint.url, checkpoint)
    restore_savepoint(open_store(savepoint.url), open_store(checkpoint))
    return scenario.with_settings(checkpoint=checkpoint)


def _kill_at(point: str, *arguments: str) -> None:
    """Run `sluicegate savepoint` until it is killed at a failpoint, or refuses."""
    done = subprocess.run(
        [sys.executable, "-m", "sluicegate.cli", "savepoint", *arguments],
        env=environment({VARIABLE: f"{point}=kill-self"}),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode != 0, f"{point} was not passed: {done.stdout}"
    refused = any(error.__name__ in done.stderr for error in (EpochUnfinished, SavepointRefused))
    assert done.returncode == -signal.SIGKILL or refused, done.stderr
