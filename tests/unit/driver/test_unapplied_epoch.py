"""The decided epoch of a checkpoint that may not be in every sink, from its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.driver.main import unapplied_epoch
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.savepoints.builders import checkpoint, run_epoch, take


def unapplied(root: Path) -> int | None:
    return unapplied_epoch(LocalObjectStore(root))


def test_an_empty_folder_has_no_unapplied_epoch(tmp_path: Path) -> None:
    assert unapplied(tmp_path / "nothing") is None


def test_an_epoch_that_spark_has_committed_is_applied(tmp_path: Path) -> None:
    checkpoint(tmp_path, 3)
    assert unapplied(tmp_path) is None


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_decided_epoch_that_spark_has_not_committed_is_unapplied(
    tmp_path: Path, *, overlapped: bool
) -> None:
    checkpoint(tmp_path, 2)
    run_epoch(tmp_path, 2, committed=False, overlapped=overlapped)
    assert unapplied(tmp_path) == 2


def test_an_overlapped_epoch_is_unapplied_even_if_spark_has_committed_it(tmp_path: Path) -> None:
    run_epoch(tmp_path, 0, overlapped=True)
    assert unapplied(tmp_path) == 0


def test_an_epoch_that_was_marked_is_applied(tmp_path: Path) -> None:
    run_epoch(tmp_path, 0, committed=False)
    StoredEpochLog(LocalObjectStore(tmp_path)).mark_applied(0)
    assert unapplied(tmp_path) is None


def test_a_sealed_lineage_has_no_unapplied_epoch(tmp_path: Path) -> None:
    take(checkpoint(tmp_path / "c", 3), str(tmp_path / "savepoints"), seal=True)
    assert unapplied(tmp_path / "c") is None
