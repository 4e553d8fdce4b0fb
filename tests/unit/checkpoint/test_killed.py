"""`sluicegate savepoint` killed with SIGKILL in the middle: never half a savepoint, nor a checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.checkpoint.restoring import restore
from sluicegate.checkpoint.savepoints import listed, take
from sluicegate.protocol.errors import CheckpointOfAnotherJob
from sluicegate.protocol.failpoints import VARIABLE
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.objects import open_objects

from .made import checkpoint


def killed(point: str, *arguments: str) -> None:
    """Run the command and see it killed at a failpoint."""
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
def test_a_killed_taker_leaves_no_savepoint_and_the_next_makes_one(
    tmp_path: Path, point: str
) -> None:
    parent, folder = checkpoint(tmp_path / "parent", 3), str(tmp_path / "savepoints")
    killed(point, "take", parent, folder, "--seal")
    assert [s.manifest for s in listed(folder)] == [None]
    made = take(parent, folder, seal=True)
    assert restore(made.url, str(tmp_path / "new")).moved


def test_a_killed_restore_leaves_no_checkpoint_and_goes_on_when_run_again(tmp_path: Path) -> None:
    made = take(checkpoint(tmp_path / "parent", 3), str(tmp_path / "savepoints"))
    new = str(tmp_path / "new")
    killed("restore-copying", "restore", made.url, new)
    with pytest.raises(CheckpointOfAnotherJob):
        claim_lineage(open_objects(new), "j")
    assert restore(made.url, new).first_epoch == 3
