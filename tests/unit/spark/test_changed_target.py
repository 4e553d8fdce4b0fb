"""A job whose sink has another target than before: another database behind the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from sluicegate.errors import MarkerMismatch, RecordOfAnotherJob, SluicegateError
from sluicegate.sinks.memory import committed
from sluicegate.spark.apply import close_writers
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import runner


def run(store: LocalObjectStore, epoch: int, target: str) -> SluicegateError | None:
    """Run an epoch in a new process and return how it failed."""
    store.create(f"offsets/{epoch}", b"v1\n{}\n{}")
    running = runner(store, target=target)
    try:
        running.run(cast("Any", None), epoch)
    except SluicegateError as error:
        return error
    finally:
        running.background.close()
        close_writers(Path(store.url).name)
    return None


def test_another_database_is_noticed_before_the_decision_and_the_former_one_goes_on(
    tmp_path: Path,
) -> None:
    store, former = LocalObjectStore(tmp_path), tmp_path.name
    assert run(store, 0, former) is None
    assert isinstance(run(store, 1, f"{former}-other"), MarkerMismatch)
    assert store.read("epochs/1") is None
    assert run(store, 1, former) is None
    assert len(committed(former)) == 6


def test_rule_14_a_discarded_epoch_of_another_database_does_not_stop_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that did not read the marker first could decide such an epoch."""
    store, former = LocalObjectStore(tmp_path), tmp_path.name
    assert run(store, 0, former) is None
    with monkeypatch.context() as earlier:
        earlier.setattr("sluicegate.spark.apply.SinkMarkers.seed", lambda *_args, **_kwargs: {})
        assert isinstance(run(store, 1, f"{former}-other"), MarkerMismatch)
    assert isinstance(run(store, 1, former), RecordOfAnotherJob)
    StoredEpochLog(store).discard(1, f"memory.{former}", "decided for another database")
    assert run(store, 1, former) is None
    assert run(store, 2, former) is None
    assert len(committed(former)) == 6
