"""What a driver does with a request to stop once nothing runs any more, without a Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.checkpoint.requests import Answer, StopRequest, ask, await_answer
from sluicegate.checkpoint.savepoints import listed
from sluicegate.protocol.errors import EpochUnfinished, SavepointFailed, StageFailed
from sluicegate.spark.departure import Departure
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import LocalObjects
from tests.unit.checkpoint.made import checkpoint, run_epoch


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """Give a checkpoint on which three epochs are done."""
    return Path(checkpoint(tmp_path / "parent", 3))


def lineage_of(parent: Path) -> str:
    found = read_lineage(LocalObjects(parent))
    assert found is not None
    return found.id


def departing(parent: Path) -> Departure:
    return Departure(str(parent), LocalObjects(parent), lineage_of(parent))


def asked(parent: Path, savepoint: str = "") -> StopRequest:
    return ask(LocalObjects(parent), lineage_of(parent), savepoint=savepoint, hold_s=60)


def answer(parent: Path, request: StopRequest) -> Answer:
    found = await_answer(LocalObjects(parent), request, patience_s=5)
    assert found is not None
    return found


def test_without_a_request_a_query_ends_as_it_would(parent: Path) -> None:
    error = StageFailed("a task failed")
    departure = departing(parent)
    assert not departure.asked()
    assert departure.leave(None) is None
    assert departure.leave(error) is error


def test_a_stop_is_answered(parent: Path) -> None:
    departure, request = departing(parent), asked(parent)
    assert departure.asked()
    assert departure.leave(None) is None
    assert answer(parent, request).stopped
    assert StoredEpochLog(LocalObjects(parent)).seal() is None


def test_a_stop_with_a_savepoint_seals_and_names_it(parent: Path, tmp_path: Path) -> None:
    departure, request = departing(parent), asked(parent, str(tmp_path / "savepoints"))
    assert departure.leave(None) is None
    (made,) = listed(str(tmp_path / "savepoints"))
    assert answer(parent, request).savepoint == made.url
    seal = StoredEpochLog(LocalObjects(parent)).seal()
    assert seal is not None
    assert seal.epoch == 3


def test_a_savepoint_that_is_refused_lets_the_job_be_started_again(parent: Path) -> None:
    departure, request = departing(parent), asked(parent, str(parent / "inside"))
    error = departure.leave(None)
    assert isinstance(error, SavepointFailed)
    assert error.restartable
    assert not answer(parent, request).stopped
    assert StoredEpochLog(LocalObjects(parent)).seal() is None


def test_an_epoch_that_is_not_in_yet_lets_the_job_be_started_again(
    parent: Path, tmp_path: Path
) -> None:
    """Spark's own commit was not waited for long enough."""
    run_epoch(parent, 3, committed=False)
    request = asked(parent, str(tmp_path / "savepoints"))
    error = departing(parent).leave(None)
    assert isinstance(error, EpochUnfinished)
    assert error.restartable
    assert not answer(parent, request).stopped


def test_a_query_that_failed_takes_no_savepoint_and_says_why(parent: Path, tmp_path: Path) -> None:
    request = asked(parent, str(tmp_path / "savepoints"))
    error = StageFailed("a task failed")
    assert departing(parent).leave(error) is error
    assert "a task failed" in answer(parent, request).said
    assert not (tmp_path / "savepoints").exists()
