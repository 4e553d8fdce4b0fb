"""Which decided epoch a checkpoint owes its sinks, by the files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.checkpoint.owing import unfinished_epoch
from sluicegate.checkpoint.savepoints import take
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import LocalObjects

from .made import checkpoint, run_epoch


def owed(root: Path) -> int | None:
    return unfinished_epoch(LocalObjects(root))


def test_an_empty_folder_owes_nothing(tmp_path: Path) -> None:
    assert owed(tmp_path / "nothing") is None


def test_an_epoch_that_spark_has_committed_is_in(tmp_path: Path) -> None:
    checkpoint(tmp_path, 3)
    assert owed(tmp_path) is None


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_decided_epoch_that_spark_has_not_committed_is_owed(
    tmp_path: Path, *, overlapped: bool
) -> None:
    checkpoint(tmp_path, 2)
    run_epoch(tmp_path, 2, committed=False, overlapped=overlapped)
    assert owed(tmp_path) == 2


def test_an_overlapped_epoch_is_owed_though_spark_has_committed_it(tmp_path: Path) -> None:
    run_epoch(tmp_path, 0, overlapped=True)
    assert owed(tmp_path) == 0


def test_an_epoch_that_was_noted_as_applied_is_in(tmp_path: Path) -> None:
    run_epoch(tmp_path, 0, committed=False)
    StoredEpochLog(LocalObjects(tmp_path)).finish(0)
    assert owed(tmp_path) is None


def test_behind_a_seal_nothing_is_owed(tmp_path: Path) -> None:
    take(checkpoint(tmp_path / "c", 3), str(tmp_path / "savepoints"), seal=True)
    assert owed(tmp_path / "c") is None
