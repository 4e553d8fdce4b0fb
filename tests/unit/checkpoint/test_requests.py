"""Asking a driver to stop through its checkpoint: who has the request, and what becomes of old ones."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sluicegate.checkpoint import requests
from sluicegate.checkpoint.requests import Answer, StopDesk, ask, await_answer
from sluicegate.protocol.errors import StoreUnavailable
from sluicegate.storage.objects import LocalObjects

DONE = Answer(stopped=True, said="stopped", savepoint="s")


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    """Give a checkpoint."""
    return LocalObjects(tmp_path)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for an answer without a pause."""
    monkeypatch.setattr(requests, "_POLL_S", 0.0)


def test_a_driver_takes_a_request_up_and_its_answer_comes_back(objects: LocalObjects) -> None:
    request = ask(objects, "l", savepoint="f", hold_s=60)
    desk = StopDesk(objects, "l", 0.0)
    assert desk.asked() == request
    desk.answer(DONE)
    assert await_answer(objects, request, patience_s=5) == DONE
    assert list(objects.names("")) == []


def test_it_is_still_the_drivers_when_it_looks_again(objects: LocalObjects) -> None:
    request = ask(objects, "l", hold_s=60)
    desk = StopDesk(objects, "l", 0.0)
    assert [desk.asked(), desk.asked()] == [request, request]


def test_a_request_is_taken_up_by_one_driver(objects: LocalObjects) -> None:
    ask(objects, "l", hold_s=60)
    desks = [StopDesk(objects, "l", 0.0) for _ in range(8)]
    found = [False] * 8

    def look(i: int) -> None:
        found[i] = desks[i].asked() is not None

    threads = [threading.Thread(target=look, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(True) == 1


def test_a_request_to_another_lineage_is_none(objects: LocalObjects) -> None:
    ask(objects, "l", hold_s=60)
    assert StopDesk(objects, "other", 0.0).asked() is None


def test_a_request_that_nobody_took_up_is_withdrawn(objects: LocalObjects) -> None:
    request = ask(objects, "l", hold_s=0.05)
    assert await_answer(objects, request, patience_s=5) is None
    assert StopDesk(objects, "l", 0.0).asked() is None


def test_a_request_that_has_run_out_is_not_taken_up(objects: LocalObjects) -> None:
    ask(objects, "l", hold_s=-1)
    assert StopDesk(objects, "l", 0.0).asked() is None


def test_a_request_that_was_taken_up_is_not_withdrawn(objects: LocalObjects) -> None:
    """The driver took it in time, and needs longer than the request holds."""
    request = ask(objects, "l", hold_s=0.5)
    assert StopDesk(objects, "l", 0.0).asked() is not None
    with pytest.raises(TimeoutError):
        await_answer(objects, request, patience_s=1.0)


def test_it_is_looked_for_no_more_often_than_allowed(objects: LocalObjects) -> None:
    desk = StopDesk(objects, "l", 3600.0)
    assert desk.asked() is None
    request = ask(objects, "l", hold_s=60)
    assert desk.asked() is None
    assert desk.asked(now=True) == request


def test_a_store_that_does_not_answer_stops_no_job(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_objects: LocalObjects, _prefix: str) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(LocalObjects, "names", away)
    desk = StopDesk(objects, "l", 0.0)
    desk.tidy()
    assert desk.asked() is None


def test_the_next_driver_answers_for_one_that_died_with_a_request(objects: LocalObjects) -> None:
    request = ask(objects, "l", hold_s=60)
    assert StopDesk(objects, "l", 0.0).asked() is not None
    after = StopDesk(objects, "l", 0.0)
    after.tidy()
    assert after.asked() is None
    answer = await_answer(objects, request, patience_s=5)
    assert answer is not None
    assert not answer.stopped


def test_what_nobody_waits_for_is_removed_at_a_start(objects: LocalObjects) -> None:
    old = ask(objects, "l", hold_s=-7200)
    objects.create(f"{old.name}.taken", b"withdrawn")
    young = ask(objects, "l", hold_s=60)
    StopDesk(objects, "l", 0.0).tidy()
    assert list(objects.names("")) == [young.name]
