"""The release of a Lease by a leader that ends in order.

These are the cases of client-go's own tests (`tools/leaderelection`):

| client-go | here |
|---|---|
| ReleaseLease | `test_a_released_lease_is_acquired_at_once_and_not_by_the_one_that_released_it` |
| ReleaseMethodCallsGet | `test_the_lease_of_another_is_not_released` |
| ReleaseRetriesOnConflict | `test_a_release_is_repeated_after_a_conflict` |
| ReleaseOnCancellation | `test_a_lease_that_is_acquired_during_the_release_is_released_too` |
"""

from __future__ import annotations

import asyncio

import pytest

from sluicegate_operator.kube.leader_election import RELEASE_S
from tests.unit.operator.clocks import Clock, run_in_skipped_time
from tests.unit.operator.kube.leader_election.lease_server import LeaseServer, elector, try_during


def test_a_released_lease_is_acquired_at_once_and_not_by_the_one_that_released_it(
    clock: Clock, server: LeaseServer
) -> None:
    changes: list[bool] = []
    first, second = elector(server, "a", changes), elector(server, "b")

    async def scenario() -> None:
        await first.renew()
        await first.release()
        await first.renew()
        assert not first.is_leader
        await second.renew()

    asyncio.run(scenario())
    assert changes == [True, False]
    assert second.is_leader
    assert clock.now == 1000.0


def test_a_release_is_repeated_after_a_conflict(clock: Clock, server: LeaseServer) -> None:
    """A renewal that was cancelled may still have been written."""
    candidate, writes = elector(server, "a"), iter([True])

    async def touch_once() -> None:
        if next(writes, False):
            server.touch()

    async def scenario() -> None:
        await candidate.renew()
        server.before_write = touch_once
        await candidate.release()
        assert await try_during(clock, elector(server, "b"), 0.0) == [True]

    asyncio.run(scenario())


def test_a_lease_that_is_acquired_during_the_release_is_released_too(
    clock: Clock, server: LeaseServer
) -> None:
    changes: list[bool] = []
    candidate = elector(server, "a", changes)

    async def pause() -> None:
        await asyncio.sleep(1)

    async def scenario() -> None:
        server.before_write = pause
        acquiring = asyncio.create_task(candidate.renew())
        await asyncio.sleep(0.5)
        await candidate.release()
        await acquiring
        assert await try_during(clock, elector(server, "b"), 0.0) == [True]

    run_in_skipped_time(clock, scenario())
    assert changes == []


def test_the_lease_of_another_is_not_released(clock: Clock, server: LeaseServer) -> None:
    candidate = elector(server, "a")

    async def scenario() -> None:
        await candidate.renew()
        server.held_by("b")
        await candidate.release()

    asyncio.run(scenario())
    assert server.spec["holderIdentity"] == "b"
    assert clock.now == 1000.0


@pytest.mark.parametrize("state", ["no Lease", "no answer", "no end"])
def test_a_release_ends_soon_whatever_the_server_does(
    clock: Clock, server: LeaseServer, state: str
) -> None:
    """A shutdown has 30 s, of which the reconciliations in progress may take 20."""
    candidate = elector(server, "a")

    async def scenario() -> None:
        await candidate.renew()
        if state == "no Lease":
            server.lease = None
        server.answers, server.hangs = state != "no answer", state == "no end"
        await candidate.release()

    run_in_skipped_time(clock, scenario())
    assert not candidate.is_leader
    assert clock.now <= 1000 + RELEASE_S
