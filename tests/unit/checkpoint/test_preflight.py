"""The preflight of a checkpoint's store, against a real S3 server and a proxy that spoils it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded import S3Endpoint
from infra.embedded.process import free_ports
from sluicegate.checkpoint.preflight import require_create_once
from sluicegate.protocol.errors import (
    AccessDenied,
    StoreUnavailable,
    StoreUnfit,
    TargetMissing,
)
from sluicegate.storage.objects import open_objects
from tests.faults.s3_proxy import Fault, S3Proxy, proxied


@pytest.fixture
def proxy(bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """Give S3 through a proxy, by the environment."""
    with proxied(bucket) as running:
        for name, value in running.endpoint.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def url(proxy: S3Proxy) -> str:
    return f"{proxy.endpoint.url}/{uuid.uuid4().hex}"


def test_a_disk_needs_no_proof(tmp_path: Path) -> None:
    require_create_once(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_creates_once_is_proven_once(proxy: S3Proxy, url: str) -> None:
    """The second start asks one question, and the race leaves nothing behind but the proof."""
    require_create_once(url)
    first = len(proxy.requests)
    require_create_once(url)
    assert len(proxy.since(first)) == 1
    assert first <= 21
    assert len(list(open_objects(url).names("preflight/"))) == 1


def test_a_proof_of_another_endpoint_does_not_count(
    url: str, bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that was copied to another store is proven there again."""
    require_create_once(url)
    with proxied(bucket) as other:
        monkeypatch.setenv("AWS_ENDPOINT", other.endpoint.endpoint)
        require_create_once(url)
        assert len(other.requests) > 16


def test_rule_01_an_endpoint_that_ignores_the_condition_is_refused(
    proxy: S3Proxy, url: str
) -> None:
    proxy.faults.append(Fault("PUT", "preflight/", "say-created", times=99))
    with pytest.raises(StoreUnfit, match=r"let \d+ of 16 requests create the same object"):
        require_create_once(url)
    with pytest.raises(StoreUnfit):  # nor is it taken for proven the next time
        require_create_once(url)


def test_a_missing_bucket_is_named(proxy: S3Proxy) -> None:
    name = f"none-{uuid.uuid4().hex[:8]}"
    with pytest.raises(TargetMissing, match=f"no bucket {name}"):
        require_create_once(f"s3://{name}/x")
    assert len(proxy.requests) == 1


def test_keys_without_a_right_are_said(proxy: S3Proxy, url: str) -> None:
    proxy.faults.append(Fault("PUT", "preflight/", "refuse", times=99))
    with pytest.raises(AccessDenied, match=r"AWS_ACCESS_KEY_ID(.|\n)*get, put, list and delete"):
        require_create_once(url)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_keys_are_said_in_a_few_lines(
    bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "wrong")
    with pytest.raises(AccessDenied) as raised:
        require_create_once(f"{bucket.url}/{uuid.uuid4().hex}")
    assert len(str(raised.value)) < 900


def test_an_endpoint_that_is_away_is_said_within_half_a_minute(
    bucket: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{free_ports(1)[0]}")
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not answer") as raised:
        require_create_once(f"{bucket.url}/x")
    assert time.monotonic() - begun < 30
    assert raised.value.restartable
