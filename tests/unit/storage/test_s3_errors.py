"""What the store on S3 makes of the errors of a server, through a proxy that answers with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from infra.local_services import S3Endpoint
from sluicegate.errors import StoreUnavailable
from sluicegate.storage import s3_object_store
from sluicegate.storage.object_store import ObjectStore, open_store
from tests.robustness.failpoints.s3_proxy import Fault, S3Proxy, proxied


@pytest.fixture
def proxy(bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """Point the environment at S3 behind a proxy."""
    monkeypatch.setattr(s3_object_store, "_CONFLICT_PAUSES_S", (0.0, 0.0))
    with proxied(bucket) as running:
        for name, value in running.endpoint.environment().items():
            monkeypatch.setenv(name, value)
        yield running


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
    proxy: S3Proxy, store: ObjectStore
) -> None:
    proxy.faults.append(Fault("PUT", "epochs/0", "conflict", times=99))
    with pytest.raises(StoreUnavailable, match="ConditionalRequestConflict"):
        store.create("epochs/0", b"x")


def test_the_usual_loser_sends_one_request(proxy: S3Proxy, store: ObjectStore) -> None:
    store.create("epochs/0", b"x")
    before = len(proxy.requests)
    assert not store.create("epochs/0", b"y")
    assert [request.method for request in proxy.since(before)] == ["PUT"]
