"""An API server with one Lease, in memory, and candidates for it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.leader_election import LeaderElector
from sluicegate_operator.kube.resource import Json
from tests.unit.operator.clocks import Clock


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


def elector(server: LeaseServer, name: str, changes: list[bool] | None = None) -> LeaderElector:
    """Return a candidate that records its changes."""
    seen = [] if changes is None else changes
    return LeaderElector(server, "n", "lease", name, seen.append)  # type: ignore[arg-type]


async def try_during(
    clock: Clock,
    candidate: LeaderElector,
    *pauses: float,
    meanwhile: Callable[[], None] | None = None,
) -> list[bool]:
    """Let a candidate try after each pause; return whether it leads then."""
    leads = []
    for seconds in pauses:
        clock.now += seconds
        if meanwhile is not None:
            meanwhile()
        await candidate.renew()
        leads.append(candidate.is_leader)
    return leads
