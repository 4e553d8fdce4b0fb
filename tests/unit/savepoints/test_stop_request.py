"""Stop requests through a checkpoint: who owns a request, and what happens to old ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluicegate.errors import StoreUnavailable
from sluicegate.savepoints import stop_request
from sluicegate.savepoints.stop_request import Answer, StopRequestInbox, await_answer, request_stop
from sluicegate.storage.object_store import LocalObjectStore

DONE = Answer(stopped=True, message="stopped", savepoint="s")


class Clock:
    """Takes the place of the module `time`: a pause passes at once."""

    def __init__(self) -> None:
        self.now_s, self.set_by_s = 1000.0, 0.0
        self.in_pause: Callable[[], object] = lambda: None

    def time(self) -> float:
        return self.now_s + self.set_by_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.in_pause()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of requester and driver, which a test may set."""
    clock = Clock()
    monkeypatch.setattr(stop_request, "time", clock)
    return clock


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    """Return a checkpoint."""
    return LocalObjectStore(tmp_path)


def test_a_driver_accepts_a_request_and_its_answer_is_returned(store: LocalObjectStore) -> None:
    request = request_stop(store, "l", savepoint="f", valid_s=60)
    inbox = StopRequestInbox(store, "l", 0.0)
    assert inbox.poll() == request
    inbox.answer(DONE)
    assert await_answer(store, request, timeout_s=5) == DONE
    assert list(store.names("")) == []


def test_a_driver_keeps_the_request_that_it_accepted_when_it_expires(
    store: LocalObjectStore, clock: Clock
) -> None:
    """Its epoch may last longer."""
    request = request_stop(store, "l", valid_s=60)
    inbox = StopRequestInbox(store, "l", 0.0)
    assert inbox.poll() == request
    clock.now_s += 61
    assert inbox.poll() == request


def test_a_requester_waits_for_a_driver_that_accepts_the_request_later(
    store: LocalObjectStore, clock: Clock
) -> None:
    request = request_stop(store, "l", valid_s=60)
    inbox = StopRequestInbox(store, "l", 0.0)

    def drive() -> None:
        if clock.now_s == 1030:
            inbox.poll()
        elif clock.now_s == 1070:
            inbox.answer(DONE)

    clock.in_pause = drive
    assert await_answer(store, request, timeout_s=90) == DONE
    assert clock.now_s == 1070


def test_a_request_that_a_driver_accepts_at_the_last_moment_is_not_withdrawn(
    tmp_path: Path, clock: Clock
) -> None:
    class Store(LocalObjectStore):
        def create(self, name: str, content: bytes) -> bool:
            if content == b"withdrawn":
                assert inbox.poll() is not None
            return super().create(name, content)

    inbox = StopRequestInbox(LocalObjectStore(tmp_path), "l", 0.0)
    store = Store(tmp_path)
    request = request_stop(store, "l", valid_s=5)
    clock.in_pause = lambda: inbox.answer(DONE)
    assert await_answer(store, request, timeout_s=90) == DONE


def test_a_request_is_accepted_by_one_driver(store: LocalObjectStore) -> None:
    request_stop(store, "l", valid_s=60)
    inboxes = [StopRequestInbox(store, "l", 0.0) for _ in range(8)]
    accepted = [False] * 8

    def poll(i: int) -> None:
        accepted[i] = inboxes[i].poll() is not None

    threads = [threading.Thread(target=poll, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accepted.count(True) == 1


def test_a_request_to_another_lineage_is_ignored(store: LocalObjectStore) -> None:
    request_stop(store, "l", valid_s=60)
    assert StopRequestInbox(store, "other", 0.0).poll() is None


def test_a_request_that_no_driver_accepts_is_withdrawn_when_it_expires(
    store: LocalObjectStore, clock: Clock
) -> None:
    request = request_stop(store, "l", valid_s=2)
    assert await_answer(store, request, timeout_s=5) is None
    assert clock.now_s == 1002
    assert StopRequestInbox(store, "l", 0.0).poll() is None


def test_a_withdrawal_that_the_store_confirms_too_late_is_one(tmp_path: Path) -> None:
    """A repeated creation finds its own object, and says that it exists."""

    class Store(LocalObjectStore):
        def create(self, name: str, content: bytes) -> bool:
            super().create(name, content)
            return False

    store = Store(tmp_path)
    request = request_stop(store, "l", valid_s=0)
    assert await_answer(store, request, timeout_s=5) is None


def test_a_request_does_not_outlive_its_sender_when_the_clock_is_set_back(
    store: LocalObjectStore, clock: Clock
) -> None:
    request = request_stop(store, "l", valid_s=60)
    clock.set_by_s = -3600
    assert await_answer(store, request, timeout_s=5) is None
    assert clock.now_s == 1005
    assert StopRequestInbox(store, "l", 0.0).poll() is None


def test_an_expired_request_is_not_accepted(store: LocalObjectStore) -> None:
    request_stop(store, "l", valid_s=-1)
    assert StopRequestInbox(store, "l", 0.0).poll() is None


def test_an_accepted_request_is_not_withdrawn(store: LocalObjectStore) -> None:
    """The driver accepted it in time, and needs longer than the request is valid."""
    request = request_stop(store, "l", valid_s=0.5)
    assert StopRequestInbox(store, "l", 0.0).poll() is not None
    with pytest.raises(TimeoutError):
        await_answer(store, request, timeout_s=1.0)


def test_a_driver_looks_for_requests_at_an_interval(store: LocalObjectStore, clock: Clock) -> None:
    inbox = StopRequestInbox(store, "l", 10.0)
    assert inbox.poll() is None
    request = request_stop(store, "l", valid_s=60)
    clock.now_s += 9
    assert inbox.poll() is None
    clock.now_s += 1
    assert inbox.poll() == request


def test_a_driver_whose_query_has_ended_looks_for_requests_at_once(store: LocalObjectStore) -> None:
    inbox = StopRequestInbox(store, "l", 10.0)
    assert inbox.poll() is None
    request = request_stop(store, "l", valid_s=60)
    assert inbox.poll() is None
    assert inbox.poll(now=True) == request


def test_a_request_that_is_withdrawn_while_a_driver_reads_it_is_ignored(tmp_path: Path) -> None:
    class Store(LocalObjectStore):
        def names(self, prefix: str) -> Iterator[str]:
            yield "requests/stop-l-0"  # before the others
            yield from super().names(prefix)

    store = Store(tmp_path)
    request = request_stop(store, "l", valid_s=60)
    assert StopRequestInbox(store, "l", 0.0).poll() == request


def test_an_unavailable_store_stops_no_job(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(_store: LocalObjectStore, _prefix: str) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(LocalObjectStore, "names", unavailable)
    inbox = StopRequestInbox(store, "l", 0.0)
    inbox.clean_up()
    assert inbox.poll() is None


def test_the_next_driver_answers_for_one_that_died(
    store: LocalObjectStore,
) -> None:
    request = request_stop(store, "l", valid_s=60)
    assert StopRequestInbox(store, "l", 0.0).poll() is not None
    successor = StopRequestInbox(store, "l", 0.0)
    successor.clean_up()
    assert successor.poll() is None
    answer = await_answer(store, request, timeout_s=5)
    assert answer is not None
    assert not answer.stopped


def test_a_withdrawn_request_gets_no_answer_of_the_next_driver(store: LocalObjectStore) -> None:
    request = request_stop(store, "l", valid_s=60)
    store.create(f"{request.name}.taken", b"withdrawn")
    StopRequestInbox(store, "l", 0.0).clean_up()
    assert store.read(f"{request.name}.done") is None


def test_a_request_that_nobody_accepted_gets_no_answer_of_the_next_driver(
    store: LocalObjectStore,
) -> None:
    request = request_stop(store, "l", valid_s=60)
    successor = StopRequestInbox(store, "l", 0.0)
    successor.clean_up()
    assert store.read(f"{request.name}.done") is None
    assert successor.poll() == request


def test_a_driver_without_an_accepted_request_answers_nothing(store: LocalObjectStore) -> None:
    request_stop(store, "l", valid_s=60)
    inbox = StopRequestInbox(store, "l", 0.0)
    assert inbox.poll() is not None
    inbox.answer(DONE)
    before = sorted(store.names(""))
    inbox.answer(Answer(stopped=False, message="again"))
    assert sorted(store.names("")) == before


def test_a_request_is_valid_for_the_given_seconds(store: LocalObjectStore, clock: Clock) -> None:
    request = request_stop(store, "l", valid_s=60)
    assert request.until_ms == 1_060_000
    clock.now_s = 1060.001
    assert StopRequestInbox(store, "l", 0.0).poll() is None
    clock.now_s = 1060.0
    assert StopRequestInbox(store, "l", 0.0).poll() == request


def test_an_expired_request_is_deleted_an_hour_later(store: LocalObjectStore, clock: Clock) -> None:
    """Its requester may still wait for the answer before."""
    request = request_stop(store, "l", valid_s=0)
    clock.now_s += 3600
    StopRequestInbox(store, "l", 0.0).clean_up()
    assert list(store.names("")) == [request.name]
    clock.now_s += 1
    StopRequestInbox(store, "l", 0.0).clean_up()
    assert list(store.names("")) == []


def test_expired_requests_are_deleted_at_a_start(store: LocalObjectStore) -> None:
    old = request_stop(store, "l", valid_s=-7200)
    store.create(f"{old.name}.taken", b"withdrawn")
    young = request_stop(store, "l", valid_s=60)
    StopRequestInbox(store, "l", 0.0).clean_up()
    assert list(store.names("")) == [young.name]
