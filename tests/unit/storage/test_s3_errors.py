"""What the store on S3 makes of the errors of a server, through a proxy that answers with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from infra.local_services import S3Endpoint
from sluicegate.errors import StoreUnavailable
from sluicegate.storage import s3_object_store
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import ObjectStore, open_store
from sluicegate.storage.staging_area import StagingArea
from tests.robustness.failpoints.actors import STORE_REQUESTS
from tests.robustness.failpoints.s3_proxy import Fault, S3Proxy, proxied
from tests.unit.savepoints.builders import record


@pytest.fixture
def proxy(bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """Point the environment at S3 behind a proxy."""
    with proxied(bucket) as running:
        for name, value in running.endpoint.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(autouse=True)
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses of the store, none of which is made."""
    pauses_s: list[float] = []
    monkeypatch.setattr(s3_object_store, "time", SimpleNamespace(sleep=pauses_s.append))
    return pauses_s


@pytest.fixture
def store(proxy: S3Proxy) -> ObjectStore:
    return open_store(f"{proxy.endpoint.url}/{uuid.uuid4().hex}")


def test_rule_01_a_conflict_without_an_object_repeats_the_creation(
    proxy: S3Proxy, store: ObjectStore
) -> None:
    """S3 answers 409 also if a request that it refuses, or a deletion, was under way."""
    proxy.faults.append(Fault("PUT", "epochs/0", "conflict"))
    assert store.create("epochs/0", b"x")
    assert store.read("epochs/0") == b"x"


def test_rule_01_a_conflict_with_an_object_is_a_lost_race(
    proxy: S3Proxy, store: ObjectStore
) -> None:
    store.create("epochs/0", b"x")
    proxy.faults.append(Fault("PUT", "epochs/0", "conflict"))
    assert not store.create("epochs/0", b"y")


def test_rule_01_conflicts_without_end_do_not_say_who_won(
    proxy: S3Proxy, store: ObjectStore, pauses_s: list[float]
) -> None:
    proxy.faults.append(Fault("PUT", "epochs/0", "conflict", times=99))
    with pytest.raises(StoreUnavailable, match="ConditionalRequestConflict"):
        store.create("epochs/0", b"x")
    assert pauses_s == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("size", [1, 12 << 20])
def test_rule_01_an_object_of_any_size_is_created_by_one_request(
    proxy: S3Proxy, store: ObjectStore, size: int
) -> None:
    """An upload in parts replaces an object that exists."""
    assert store.create("epochs/0", bytes(size))
    assert [request.kind for request in proxy.requests] == ["PUT"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("no space left", "no space left"),
        ("put: <?xml version='1.0'?><Code>A</Code>\n<Message>b</Message>", "put: A: b"),
    ],
)
def test_an_error_is_described_in_one_line(error: str, line: str) -> None:
    assert s3_object_store._describe(OSError(error)) == line


def test_the_usual_loser_sends_one_request(proxy: S3Proxy, store: ObjectStore) -> None:
    store.create("epochs/0", b"x")
    before = len(proxy.requests)
    assert not store.create("epochs/0", b"y")
    assert [request.kind for request in proxy.since(before)] == ["PUT"]


@pytest.mark.parametrize(
    "place", [place for place in STORE_REQUESTS if STORE_REQUESTS[place].kind != "PUT"]
)
def test_pruning_that_a_failed_request_interrupts_is_completed_later(
    proxy: S3Proxy, store: ObjectStore, place: str
) -> None:
    """The requests are those that a long run lets fail."""
    log, area = StoredEpochLog(store, retained=1), StagingArea(store)
    old, kept = (record(epoch, "l") for epoch in (4, 15))
    for each in (old, kept):
        log.create(each)
        log.mark_applied(each.epoch)
        area.write(each.epoch, each.attempt, "s/0-0-0-0", b"1")
    requests = STORE_REQUESTS[place]
    proxy.faults.append(Fault(requests.kind, requests.name, "refuse"))
    for _ in range(2):
        log.prune_after(kept)
    assert proxy.faults[0].met == 1
    kept_names = ["epochs/15", "epochs/15.applied", "staging/15/a15/s/0-0-0-0"]
    assert sorted(store.names("")) == kept_names


def test_an_outage_is_waited_for_as_long_as_the_caller_says_however_many_requests_that_takes(
    proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default obstore gives up after ten retries, which may be over within 3 s."""
    monkeypatch.setattr(s3_object_store, "_SHORTEST_PAUSE_S", 0.001)
    monkeypatch.setattr(s3_object_store, "_LONGEST_PAUSE_S", 0.002)
    store = open_store(f"{proxy.endpoint.url}/{uuid.uuid4().hex}", retry_timeout_s=30)
    store.create("epochs/0", b"x")
    proxy.faults.append(Fault("GET", "epochs/0", "unavailable", times=40))
    assert store.read("epochs/0") == b"x"
