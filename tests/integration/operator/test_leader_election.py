"""Leader election on a real API server, after the leader was killed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from sluicegate_operator.kube import leader_election
from sluicegate_operator.kube.client import Api as Client
from sluicegate_operator.kube.client import connect
from sluicegate_operator.kube.leader_election import LeaderElector
from tests.integration.operator.api import Api


def test_the_next_container_of_a_pod_acquires_the_lease_at_once(
    api: Api, namespace: str, kubeconfig: Path
) -> None:
    del api  # the fixture grants the permissions in the namespace
    assert asyncio.run(_takeover_s(kubeconfig, namespace, "pod-1", "pod-1")) < 5.0


def test_another_pod_waits_until_the_lease_has_expired(
    api: Api, namespace: str, kubeconfig: Path
) -> None:
    del api
    elapsed_s = asyncio.run(_takeover_s(kubeconfig, namespace, "pod-1", "pod-2"))
    assert elapsed_s >= leader_election.DURATION_S


async def _takeover_s(kubeconfig: Path, namespace: str, first: str, second: str) -> float:
    """Kill the first leader; return how long the second candidate takes to become the leader."""
    client = await connect(str(kubeconfig))
    try:
        await _election_s(client, namespace, first)
        return await _election_s(client, namespace, second)
    finally:
        await client.close()


async def _election_s(client: Client, namespace: str, identity: str) -> float:
    elected = asyncio.Event()
    elector = LeaderElector(
        client, namespace, "sluicegate-operator", identity, lambda _: elected.set()
    )
    start = time.monotonic()
    task = asyncio.create_task(elector.run())
    await asyncio.wait_for(elected.wait(), 45.0)
    elapsed_s = time.monotonic() - start
    task.cancel()  # like SIGKILL: the lease is not released
    await asyncio.gather(task, return_exceptions=True)
    return elapsed_s
