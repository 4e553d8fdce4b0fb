"""Leader election, as client-go's own tests have it, with a Lease in memory and no clock but the test's."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pytest

from sluicegate_operator.kube import leader_election
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.leader_election import DURATION_S, RENEW_S, LeaderElector
from sluicegate_operator.kube.resource import Json


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class LeaseServer:
    """An API server with one Lease, which may not answer."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.answers = True

    async def request(self, method: str, _path: str, body: Any = None) -> Json:
        if not self.answers:
            raise ApiError(0, "NoAnswer", "no answer")
        if method != "GET":
            sent = body["metadata"].get("resourceVersion")
            if self.lease is not None and sent != str(self.version):
                raise ApiError(HTTPStatus.CONFLICT, "Conflict", "it has changed")
            self.version += 1
            meta = {**body["metadata"], "resourceVersion": str(self.version)}
            self.lease = {**body, "metadata": meta}
        if self.lease is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "no Lease")
        return self.lease

    async def patch(self, path: str, body: Json) -> Json:
        return await self.request("PUT", path, body)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the time of the elector."""
    clock = Clock()
    monkeypatch.setattr(leader_election, "time", clock)
    return clock


def elector(server: LeaseServer, name: str, changes: list[bool]) -> LeaderElector:
    """Return a candidate that records its changes."""
    return LeaderElector(server, "n", "lease", name, changes.append)  # type: ignore[arg-type]


def test_a_leader_whose_lease_lapsed_and_was_renewed_is_told_both(clock: Clock) -> None:
    """What was skipped while it was not the leader is done after that."""
    server, changes = LeaseServer(), list[bool]()
    candidate = elector(server, "a", changes)

    async def scenario() -> None:
        await candidate.renew()
        clock.now += RENEW_S + 1
        assert not candidate.is_leader
        await candidate.renew()

    asyncio.run(scenario())
    assert changes == [True, False, True]
    assert candidate.is_leader


def test_a_leader_without_an_answer_leads_until_its_deadline(clock: Clock) -> None:
    server, changes = LeaseServer(), list[bool]()
    candidate = elector(server, "a", changes)

    async def scenario() -> None:
        await candidate.renew()
        server.answers = False
        clock.now += RENEW_S - 1
        await candidate.renew()
        assert changes == [True]
        clock.now += 1
        await candidate.renew()

    asyncio.run(scenario())
    assert changes == [True, False]


def test_a_lease_is_taken_over_once_it_was_not_renewed_for_its_duration(clock: Clock) -> None:
    server = LeaseServer()
    first, second = elector(server, "a", []), elector(server, "b", [])

    async def scenario() -> list[bool]:
        await first.renew()
        held = []
        for seconds in (0.0, DURATION_S - 1, 1.0):
            clock.now += seconds
            await second.renew()
            held.append(second.is_leader)
        return held

    assert asyncio.run(scenario()) == [False, False, True]
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 2


def test_a_released_lease_is_acquired_at_once_and_not_by_the_one_that_released_it(
    clock: Clock,
) -> None:
    server = LeaseServer()
    first, second = elector(server, "a", []), elector(server, "b", [])

    async def scenario() -> None:
        await first.renew()
        await first.release()
        await first.renew()
        assert not first.is_leader
        await second.renew()

    asyncio.run(scenario())
    assert second.is_leader
    assert clock.now == 1000.0
