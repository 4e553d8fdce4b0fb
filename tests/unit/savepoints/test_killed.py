"""`sluicegate savepoint` killed by SIGKILL leaves neither a broken savepoint nor a broken checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.errors import CheckpointOfAnotherJob
from sluicegate.failpoints import VARIABLE
from sluicegate.savepoints.catalog import list_savepoints
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.object_store import open_store
from tests.unit.savepoints.builders import checkpoint, restore, take


def run_and_kill(point: str, *arguments: str) -> None:
    """Run the command until it is killed at a failpoint."""
    done = subprocess.run(
        [sys.executable, "-m", "sluicegate.cli", "savepoint", *arguments],
        env={**os.environ, VARIABLE: f"{point}=kill-self"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    "point", ["savepoint-copying", "before-seal", "after-seal", "before-manifest"]
)
def test_a_killed_take_leaves_no_savepoint_and_can_be_repeated(tmp_path: Path, point: str) -> None:
    parent, folder = checkpoint(tmp_path / "parent", 3), str(tmp_path / "savepoints")
    run_and_kill(point, "take", parent, folder, "--seal")
    assert [s.manifest for s in list_savepoints(folder)] == [None]
    savepoint = take(parent, folder, seal=True)
    assert restore(savepoint.url, str(tmp_path / "new")).moved


def test_a_killed_restore_leaves_no_checkpoint_and_can_be_resumed(tmp_path: Path) -> None:
    savepoint = take(checkpoint(tmp_path / "parent", 3), str(tmp_path / "savepoints"))
    new = str(tmp_path / "new")
    run_and_kill("restore-copying", "restore", savepoint.url, new)
    with pytest.raises(CheckpointOfAnotherJob):
        claim_lineage(open_store(new), "j")
    assert restore(savepoint.url, new).first_epoch == 3
