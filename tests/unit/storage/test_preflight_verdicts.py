"""What the preflight of a store concludes from its answers, without a server."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import (
    AccessDenied,
    PreflightFailed,
    SluicegateError,
    StoreUnavailable,
    StoreUnsafe,
    TargetMissing,
)
from sluicegate.storage import preflight
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.storage.preflight import verify_conditional_create

ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL")

Use = Callable[[LocalObjectStore], list[float]]


class LastWins(LocalObjectStore):
    """A store that ignores the condition."""

    def create(self, name: str, content: bytes) -> bool:
        self.put(name, [content])
        return True


class ReplacesTheWinner(LocalObjectStore):
    """A store that tells one client that it won, and stores the object of another one."""

    def create(self, name: str, content: bytes) -> bool:
        won = super().create(name, content)
        if won and name.startswith("preflight/probe"):
            self.put(name, [b"of another client"])
        return won


class LosesTheReply(LocalObjectStore):
    """A store whose client repeats a request that succeeded, and learns that the object exists."""

    def create(self, name: str, content: bytes) -> bool:
        won = super().create(name, content)
        return won and not name.startswith("preflight/probe")


class Rejects(LosesTheReply):
    """A store that lets nobody win, and holds what none of them sent."""

    def create(self, name: str, content: bytes) -> bool:
        return super().create(name, content if "probe" not in name else b"of another client")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Return a function that puts a store in the place of Amazon's; it returns the limits of time."""
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)

    def use(store: LocalObjectStore) -> list[float]:
        limits: list[float] = []

        def opened(_url: str, *, retry_timeout_s: float) -> LocalObjectStore:
            limits.append(retry_timeout_s)
            return store

        monkeypatch.setattr(preflight, "open_store", opened)
        return limits

    return use


@pytest.mark.parametrize("kind", [LocalObjectStore, LosesTheReply])
def test_a_store_with_one_winner_passes_and_keeps_a_proof_for_its_endpoint(
    kind: type[LocalObjectStore],
    use: Use,
    tmp_path: Path,
) -> None:
    store = kind(tmp_path)
    limits = use(store)
    verify_conditional_create("s3://b/x")
    proof = f"preflight/{hashlib.sha256(b'amazon').hexdigest()[:16]}"
    assert (list(store.names("")), store.read(proof), limits) == ([proof], b"amazon", [15.0])


@pytest.mark.parametrize(
    ("kind", "winners"), [(LastWins, 16), (ReplacesTheWinner, 0), (Rejects, 0)]
)
def test_a_store_with_another_number_of_winners_is_rejected(
    kind: type[LocalObjectStore],
    winners: int,
    use: Use,
    tmp_path: Path,
) -> None:
    use(kind(tmp_path))
    with pytest.raises(StoreUnsafe, match=f"let {winners} of 16 requests create"):
        verify_conditional_create("s3://b/x")


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("NoSuchBucket", TargetMissing, "has no bucket b"),
        ("403 Forbidden", AccessDenied, "denied access to bucket b"),
        ("501 Not Implemented", StoreUnsafe, "does not support conditional creation"),
        ("Code: NotImplemented", StoreUnsafe, "does not support conditional creation"),
        ("400 Bad Request", PreflightFailed, "rejected a request for bucket b as invalid"),
        ("400 Bad Request: ExpiredToken", AccessDenied, "AWS_SESSION_TOKEN, which expires"),
        ("400 Bad Request: InvalidToken", AccessDenied, "AWS_SESSION_TOKEN, which expires"),
        ("403 Forbidden: RequestTimeTooSkewed", StoreUnavailable, "differ by too much"),
        ("an incorrectly configured region", PreflightFailed, "the bucket's name and AWS_REGION"),
        ("Connection refused", StoreUnavailable, "does not answer"),
    ],
)
def test_each_failure_has_its_own_error(
    answer: str,
    kind: type[SluicegateError],
    words: str,
    use: Use,
    tmp_path: Path,
) -> None:
    class Fails(LocalObjectStore):
        def read(self, name: str) -> bytes | None:
            raise StoreUnavailable(f"no {name}: {answer}")

    use(Fails(tmp_path))
    with pytest.raises(SluicegateError, match=words) as caught:
        verify_conditional_create("s3://b/x")
    assert type(caught.value) is kind


def test_a_certificate_that_is_not_trusted_is_named(
    use: Use,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fails(LocalObjectStore):
        def read(self, name: str) -> bytes | None:
            raise StoreUnavailable(f"no {name}")

    use(Fails(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT", "https://s3.example")
    connects(monkeypatch, expired())
    with pytest.raises(
        StoreUnavailable, match=r"certificate of .* is not trusted \(it has expired"
    ):
        verify_conditional_create("s3://b/x")


def expired() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("no")
    error.verify_message = "it has expired"
    return error


def connects(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[str, int]]:  # noqa: ANN401
    """Let connections fail with an exception, or return a socket; return their addresses."""
    addresses: list[tuple[str, int]] = []

    def create_connection(address: tuple[str, int], _timeout_s: float) -> socket.socket:
        addresses.append(address)
        if isinstance(answer, Exception):
            raise answer
        connected: socket.socket = answer
        return connected

    monkeypatch.setattr(socket, "create_connection", create_connection)
    return addresses


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [("https://s3.example", ("s3.example", 443)), ("https://h:8443", ("h", 8443))],
)
def test_the_certificate_of_an_https_endpoint_is_read(
    endpoint: str, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = connects(monkeypatch, expired())
    assert preflight._untrusted(endpoint) == "it has expired"
    assert addresses == [address]


@pytest.mark.parametrize("endpoint", ["amazon", "http://h", "https://"])
def test_other_endpoints_have_no_certificate(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = connects(monkeypatch, expired())
    assert preflight._untrusted(endpoint) == ""
    assert addresses == []


def test_a_server_that_ends_the_connection_has_shown_no_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    connects(monkeypatch, ours)
    assert preflight._untrusted("https://h") == ""
