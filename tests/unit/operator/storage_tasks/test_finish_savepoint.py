"""Completion of a savepoint whose checkpoint is sealed, on a local store."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.errors import SavepointRefused
from sluicegate.savepoints.manifest import MANIFEST
from sluicegate.storage.object_store import open_store
from sluicegate_operator.reconcile.storage_tasks import FINISH, TakeSavepoint
from sluicegate_operator.storage_tasks.worker.savepoint import take as take_by_worker
from tests.unit.savepoints.builders import checkpoint, take


def unpublished(job: str, folder: str) -> None:
    """Take a savepoint that seals the checkpoint and has no manifest."""
    savepoint = take(job, folder, seal=True)
    Path(savepoint.url, MANIFEST).unlink()


def test_a_savepoint_that_sealed_its_checkpoint_is_completed(tmp_path: Path) -> None:
    job, folder = checkpoint(tmp_path / "job", 3), str(tmp_path / "savepoints" / "move")
    unpublished(job, folder)
    taken = take_by_worker(TakeSavepoint(job, folder, FINISH))
    assert (taken.epoch, taken.sealed) == (2, True)
    assert open_store(taken.location).read(MANIFEST) is not None


def test_a_savepoint_of_a_checkpoint_that_another_one_sealed_is_not_completed(
    tmp_path: Path,
) -> None:
    """Somebody may have moved the job with the other one."""
    job, folder = checkpoint(tmp_path / "job", 3), str(tmp_path / "savepoints" / "move")
    take(job, f"{folder}-2", seal=True)
    with pytest.raises(SavepointRefused, match="sealed by another savepoint"):
        take_by_worker(TakeSavepoint(job, folder, FINISH))


def test_an_open_checkpoint_is_not_sealed_to_complete_a_savepoint(tmp_path: Path) -> None:
    job, folder = checkpoint(tmp_path / "job", 3), str(tmp_path / "savepoints" / "move")
    with pytest.raises(SavepointRefused, match="is not sealed"):
        take_by_worker(TakeSavepoint(job, folder, FINISH))
