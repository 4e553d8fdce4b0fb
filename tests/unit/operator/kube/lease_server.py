"""An API server with one Lease, in memory."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.resource import Json


async def nothing() -> None:
    """Do nothing."""


class LeaseServer:
    """An API server with one Lease, which may not answer, or answer late.

    `before_write` runs before each write is judged, so that a test can let something else happen there.
    """

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.answers = True
        self.hangs = False
        self.before_write: Callable[[], Awaitable[None]] = nothing

    async def request(self, method: str, _path: str, body: Any = None) -> Json:
        if self.hangs:
            await asyncio.sleep(1e6)
        if not self.answers:
            raise ApiError(0, "NoAnswer", "no answer")
        if method != "GET":
            await self.before_write()
            sent = body["metadata"].get("resourceVersion")
            if self.lease is not None and sent != str(self.version):
                raise ApiError(HTTPStatus.CONFLICT, "Conflict", "it has changed")
            self.store(body)
        if self.lease is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "no Lease")
        return copy.deepcopy(self.lease)

    async def patch(self, path: str, body: Json) -> Json:
        return await self.request("PATCH", path, body)

    def store(self, body: Json) -> None:
        """Store a Lease, as the server does with a version of its own."""
        self.version += 1
        before: Json = self.lease or {"metadata": {}, "spec": {}}
        meta = {**before["metadata"], **body["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**before, **copy.deepcopy(body), "metadata": meta}

    def touch(self) -> None:
        """Change the metadata of the Lease, as `kubectl label` does."""
        self.store({"metadata": {"labels": {"touched": str(self.version)}}})

    @property
    def spec(self) -> Json:
        """The spec of the Lease."""
        assert self.lease is not None
        spec: Json = self.lease["spec"]
        return spec

    def held_by(self, holder: str | None, **spec: Any) -> None:
        """Store a Lease that names a holder."""
        self.store({"metadata": {"name": "lease"}, "spec": {"holderIdentity": holder, **spec}})
