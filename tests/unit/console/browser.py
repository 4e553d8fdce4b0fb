"""A browser of the console, and checkpoints to show: those of the real runner."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.types import ASGIApp

from sluicegate import failpoints
from sluicegate.sinks.memory import forget
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import run

EPOCHS = 3


@dataclass(frozen=True)
class Answer:
    """A response: `text` is what a reader sees of it."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def text(self) -> str:
        without_tags = re.sub(r"<[^>]+>", " ", self.body)
        return " ".join(html.unescape(without_tags).split())


def scope(
    path: str, headers: list[tuple[bytes, bytes]], query: str = "", method: str = "GET"
) -> dict[str, Any]:
    """Return what a server passes to an application for a request."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
    }


def request(
    app: ASGIApp, path: str, host: str = "127.0.0.1:8321", query: str = "", **headers: str
) -> Answer:
    """Return the answer to a GET request."""
    return _send(app, "GET", path, query, [], {"host": host, **headers})


def post(
    app: ASGIApp,
    path: str,
    form: Mapping[str, str],
    /,
    host: str = "127.0.0.1:8321",
    **headers: str,
) -> Answer:
    """Return the answer to a form."""
    body = [urlencode(form).encode()]
    return _send(app, "POST", path, "", body, {"host": host, **headers})


def _send(
    app: ASGIApp, method: str, path: str, query: str, body: list[bytes], headers: Mapping[str, str]
) -> Answer:
    sent: list[Any] = []
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        if body:
            return {"type": "http.request", "body": body.pop()}
        return await asyncio.Future()  # the browser waits

    async def send(message: Any) -> None:  # noqa: ANN401 - of starlette's
        sent.append(message)

    async def answer() -> None:
        await app(scope(path, pairs, query, method), receive, send)

    asyncio.run(answer())
    content = b"".join(message.get("body", b"") for message in sent)
    raw = sent[0]["headers"]
    return Answer(sent[0]["status"], {k.decode(): v.decode() for k, v in raw}, content.decode())


def new(root: Path, name: str) -> LocalObjectStore:
    """Return a checkpoint in which nothing is decided."""
    folder = name.rpartition("/")[2]
    forget(folder)
    store = LocalObjectStore(root / name)
    create_lineage(store, Lineage(folder, "orders"))
    return store


def in_doubt(root: Path, name: str) -> LocalObjectStore:
    """Run a job until its first epoch is decided, and end its driver there."""
    store = new(root, name)
    failpoints.arm("after-decide@0=raise")
    try:
        with pytest.raises(failpoints.FailpointHit):
            run(store)
    finally:
        failpoints.arm("")
    return store


def finished(root: Path, name: str, epochs: int = EPOCHS) -> LocalObjectStore:
    """Run a job until its last epoch is in every sink and committed."""
    store = new(root, name)
    run(store, epochs)
    for epoch in range(epochs):
        store.create(f"commits/{epoch}", b"v1\n{}")
    return store
