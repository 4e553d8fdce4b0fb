"""Copying files from one store to another."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sluicegate.savepoints import copy
from sluicegate.savepoints.copy import copy_files
from sluicegate.savepoints.file_selection import FilePruned
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.savepoints.builders import write


def test_after_the_first_error_no_further_file_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint may have thousands of files; only those that are being copied are finished."""
    monkeypatch.setattr(copy, "_THREADS", 1)
    source, target = tmp_path / "source", tmp_path / "target"
    names = [f"file-{n}" for n in range(50)]
    for name in names:
        write(source, name)
    stores = LocalObjectStore(source), LocalObjectStore(target)
    with pytest.raises(FilePruned, match="missing"):
        copy_files(
            *stores, {name: name for name in ["missing", *names]}, reach=lambda: time.sleep(0.01)
        )
    assert len(list(stores[1].names(""))) < len(names)
