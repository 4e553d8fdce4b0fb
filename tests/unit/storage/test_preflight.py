"""The preflight of a checkpoint's store, against a real S3 server behind a faulty proxy."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import S3Endpoint
from infra.local_services.process import free_ports
from sluicegate.errors import AccessDenied, StoreUnavailable, StoreUnsafe, TargetMissing
from sluicegate.storage.object_store import open_store
from sluicegate.storage.preflight import verify_conditional_create
from tests.robustness.failpoints.s3_proxy import Fault, S3Proxy, proxied


@pytest.fixture
def proxy(bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """Point the environment at S3 behind a proxy."""
    with proxied(bucket) as running:
        for name, value in running.endpoint.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def url(proxy: S3Proxy) -> str:
    return f"{proxy.endpoint.url}/{uuid.uuid4().hex}"


def test_a_local_disk_is_not_tested(tmp_path: Path) -> None:
    verify_conditional_create(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_tested_once(proxy: S3Proxy, url: str) -> None:
    """The second start sends one request, and the test leaves only its proof in the store."""
    verify_conditional_create(url)
    first = len(proxy.requests)
    verify_conditional_create(url)
    assert len(proxy.since(first)) == 1
    assert first <= 22
    assert len(list(open_store(url).names("preflight/"))) == 1


def test_a_proof_of_another_endpoint_is_ignored(
    url: str, bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that was copied to another store is tested again there."""
    verify_conditional_create(url)
    with proxied(bucket) as other:
        monkeypatch.setenv("AWS_ENDPOINT", other.endpoint.endpoint)
        verify_conditional_create(url)
        assert len(other.requests) > 16


def test_rule_01_an_endpoint_that_ignores_the_condition_is_rejected(
    proxy: S3Proxy, url: str
) -> None:
    proxy.faults.append(Fault("PUT", "preflight/", "say-created", times=99))
    with pytest.raises(StoreUnsafe, match=r"let \d+ of 16 requests create the same object"):
        verify_conditional_create(url)
    with pytest.raises(StoreUnsafe):  # the failure is not remembered as a success
        verify_conditional_create(url)


def test_a_winner_whose_reply_was_lost_is_found_by_its_content(proxy: S3Proxy, url: str) -> None:
    """The client repeats the request, and the store answers that the object exists."""
    proxy.faults.append(Fault("PUT", "preflight/probe", "lose-reply", times=16))
    verify_conditional_create(url)


def test_an_endpoint_that_lists_new_objects_late_is_rejected(proxy: S3Proxy, url: str) -> None:
    """The newest decision of a checkpoint is found by listing."""
    proxy.faults.append(Fault("LIST", "", "say-empty", times=99))
    with pytest.raises(StoreUnsafe, match="does not list an object"):
        verify_conditional_create(url)


def test_a_missing_bucket_is_reported_by_name(proxy: S3Proxy) -> None:
    name = f"none-{uuid.uuid4().hex[:8]}"
    with pytest.raises(TargetMissing, match=f"no bucket {name}"):
        verify_conditional_create(f"s3://{name}/x")
    assert len(proxy.requests) == 1


def test_missing_permissions_are_reported(proxy: S3Proxy, url: str) -> None:
    proxy.faults.append(Fault("PUT", "preflight/", "refuse", times=99))
    with pytest.raises(AccessDenied, match=r"AWS_ACCESS_KEY_ID(.|\n)*get, put, list and delete"):
        verify_conditional_create(url)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_keys_are_reported_in_a_few_lines(
    bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "wrong")
    with pytest.raises(AccessDenied) as raised:
        verify_conditional_create(f"{bucket.url}/{uuid.uuid4().hex}")
    assert len(str(raised.value)) < 900


def test_an_unreachable_endpoint_is_reported_within_half_a_minute(
    bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{free_ports(1)[0]}")
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not answer") as raised:
        verify_conditional_create(f"{bucket.url}/x")
    assert time.monotonic() - start < 30
    assert raised.value.retryable
