"""What a driver makes durable on a local disk before it decides an epoch."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluicegate.spark.ports import BatchPlan, EpochTimings
from sluicegate.storage.object_store import LocalObjectStore


def check_state(root: Path, epoch: int) -> None:
    """Run the last step before the decision, of a plan without state."""
    context = SimpleNamespace(store=LocalObjectStore(root))
    execution = SimpleNamespace(state_operators=list)
    plan = BatchPlan(
        cast("Any", execution), cast("Any", context), cast("Any", None), EpochTimings()
    )
    plan.check_state(epoch)


def test_the_logs_of_spark_are_synced_before_the_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the commit of the epoch before, and what its sources noted: Spark syncs none of them."""
    names = ["metadata", "commits/4", "offsets/5", "sources/0/0", "sources/1/5"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda one: synced.add(os.fstat(one).st_ino))
    check_state(tmp_path, 5)
    assert [name for name in names if (tmp_path / name).stat().st_ino not in synced] == []


def test_the_first_epoch_has_no_commit_before_it(tmp_path: Path) -> None:
    check_state(tmp_path, 0)
