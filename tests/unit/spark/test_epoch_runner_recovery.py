"""What the runner removes of attempts that were not decided; the rows are staged without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from sluicegate.errors import StageFailed
from sluicegate.spark.apply import close_writers
from sluicegate.spark.ports import BatchPlan
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import run, runner

CHANGES, SNAPSHOT = "state/0/0/2.changelog", "state/0/0/2.zip"


@pytest.mark.parametrize("offsets", [b"v1\n{}\n{}", b""], ids=["complete", "empty"])
def test_a_start_removes_the_snapshots_of_an_attempt_that_was_not_decided(
    tmp_path: Path, offsets: bytes
) -> None:
    """Also after a power cut, which leaves files of Spark empty."""
    store = LocalObjectStore(tmp_path)
    run(store)
    for name in (CHANGES, SNAPSHOT):
        store.create(name, b"")
    store.create("offsets/1", offsets)
    runner(store).recover()
    assert list(store.names("state/")) == [CHANGES]


def test_a_start_without_an_undecided_attempt_does_not_list_the_state(tmp_path: Path) -> None:
    class NoState(LocalObjectStore):
        def names(self, prefix: str) -> Iterator[str]:
            assert not prefix.startswith("state/")
            return super().names(prefix)

    store = NoState(tmp_path)
    run(store)
    runner(store).recover()


def test_a_driver_removes_the_snapshots_of_its_own_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> None:
        raise StageFailed("once")

    store = LocalObjectStore(tmp_path)
    for name in ("offsets/0", CHANGES, SNAPSHOT):
        store.create(name, b"v1\n{}\n{}")
    running = runner(store)
    with monkeypatch.context() as failing:
        failing.setattr(BatchPlan, "check_state", fails)
        with pytest.raises(StageFailed):
            running.run(cast("Any", None), 0)
    assert set(store.names("state/")) == {CHANGES, SNAPSHOT}
    running.run(cast("Any", None), 0)
    running.background.close()
    close_writers(tmp_path.name)
    assert list(store.names("state/")) == [CHANGES]
