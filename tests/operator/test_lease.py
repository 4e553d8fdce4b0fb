"""The lease by itself, on the real API server: who has it after its holder was killed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from sluicegate_operator.cluster.client import Api as Client
from sluicegate_operator.cluster.client import connect
from sluicegate_operator.service.lease import DURATION_S, Lease

from .api import Api


def test_the_next_container_of_a_pod_has_the_lease_of_the_last_at_once(
    api: Api, namespace: str, kubeconfig: Path
) -> None:
    del api  # the namespace's rights are there
    assert asyncio.run(_takes_s(kubeconfig, namespace, "pod-1", "pod-1")) < DURATION_S / 3


def test_another_pod_waits_until_the_lease_has_run_out(
    api: Api, namespace: str, kubeconfig: Path
) -> None:
    del api
    assert asyncio.run(_takes_s(kubeconfig, namespace, "pod-1", "pod-2")) >= DURATION_S


async def _takes_s(kubeconfig: Path, namespace: str, first: str, second: str) -> float:
    """Kill the first; return how long the second takes to lead."""
    client = await connect(str(kubeconfig))
    try:
        await _leads_after_s(client, namespace, first)
        return await _leads_after_s(client, namespace, second)
    finally:
        await client.close()


async def _leads_after_s(client: Client, namespace: str, identity: str) -> float:
    leads = asyncio.Event()
    lease = Lease(client, namespace, "sluicegate-operator", identity, lambda _: leads.set())
    began = time.monotonic()
    running = asyncio.create_task(lease.run())
    await asyncio.wait_for(leads.wait(), 3 * DURATION_S)
    took = time.monotonic() - began
    running.cancel()  # as SIGKILL: nothing is released
    await asyncio.gather(running, return_exceptions=True)
    return took
