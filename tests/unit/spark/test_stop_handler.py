"""How a driver completes a stop request after its query has stopped, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.errors import EpochUnfinished, SavepointFailed, StageFailed
from sluicegate.savepoints.catalog import list_savepoints
from sluicegate.savepoints.stop_request import Answer, StopRequest, await_answer, request_stop
from sluicegate.spark.stop_handler import StopRequestHandler
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.savepoints.builders import checkpoint, run_epoch


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """Return a checkpoint with three applied epochs."""
    return Path(checkpoint(tmp_path / "parent", 3))


def lineage_of(parent: Path) -> str:
    found = read_lineage(LocalObjectStore(parent))
    assert found is not None
    return found.id


def handler_of(parent: Path) -> StopRequestHandler:
    return StopRequestHandler(str(parent), LocalObjectStore(parent), lineage_of(parent))


def requested(parent: Path, savepoint: str = "") -> StopRequest:
    return request_stop(
        LocalObjectStore(parent), lineage_of(parent), savepoint=savepoint, valid_s=60
    )


def answer(parent: Path, request: StopRequest) -> Answer:
    found = await_answer(LocalObjectStore(parent), request, timeout_s=5)
    assert found is not None
    return found


def test_without_a_request_the_error_is_unchanged(parent: Path) -> None:
    error = StageFailed("a task failed")
    handler = handler_of(parent)
    assert not handler.requested()
    assert handler.complete(None) is None
    assert handler.complete(error) is error


def test_a_stop_is_answered(parent: Path) -> None:
    handler, request = handler_of(parent), requested(parent)
    assert handler.requested()
    assert handler.complete(None) is None
    assert answer(parent, request).stopped
    assert StoredEpochLog(LocalObjectStore(parent)).seal() is None


def test_a_stop_with_a_savepoint_seals_and_returns_its_address(
    parent: Path, tmp_path: Path
) -> None:
    handler, request = handler_of(parent), requested(parent, str(tmp_path / "savepoints"))
    assert handler.complete(None) is None
    (made,) = list_savepoints(str(tmp_path / "savepoints"))
    assert answer(parent, request).savepoint == made.url
    seal = StoredEpochLog(LocalObjectStore(parent)).seal()
    assert seal is not None
    assert seal.epoch == 3


def test_after_a_refused_savepoint_the_job_may_restart(parent: Path) -> None:
    handler, request = handler_of(parent), requested(parent, str(parent / "inside"))
    error = handler.complete(None)
    assert isinstance(error, SavepointFailed)
    assert error.retryable
    assert not answer(parent, request).stopped
    assert StoredEpochLog(LocalObjectStore(parent)).seal() is None


def test_after_a_savepoint_with_an_unapplied_epoch_the_job_may_restart(
    parent: Path, tmp_path: Path
) -> None:
    """Spark had not committed the last epoch in time."""
    run_epoch(parent, 3, committed=False)
    request = requested(parent, str(tmp_path / "savepoints"))
    error = handler_of(parent).complete(None)
    assert isinstance(error, EpochUnfinished)
    assert error.retryable
    assert not answer(parent, request).stopped


def test_a_failed_query_takes_no_savepoint_and_answers_with_its_error(
    parent: Path, tmp_path: Path
) -> None:
    request = requested(parent, str(tmp_path / "savepoints"))
    error = StageFailed("a task failed")
    assert handler_of(parent).complete(error) is error
    assert "a task failed" in answer(parent, request).message
    assert not (tmp_path / "savepoints").exists()
