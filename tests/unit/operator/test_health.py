"""The port of health and metrics: kubelets and Prometheus reach it by the addresses of the pod's family."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from sluicegate_operator.health import Health


async def status_of(host: str) -> int:
    """Return the status of /healthz at an address of this machine."""
    health = Health(0, CollectorRegistry(), alive=[], ready=[])
    running = asyncio.create_task(health.run())
    try:
        async with asyncio.timeout(10), aiohttp.ClientSession() as session:
            while not health.bound_port and not running.done():  # noqa: ASYNC110 - milliseconds
                await asyncio.sleep(0.01)
            url = f"http://{host}:{health.bound_port}/healthz"
            async with session.get(url) as response:
                return response.status
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_health_is_served_on_both_families_of_addresses(host: str) -> None:
    """A cluster may have IPv6 only, and then no pod has an IPv4 address to be probed at."""
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert asyncio.run(status_of(host)) == 200


def test_a_machine_without_ipv6_serves_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert asyncio.run(status_of("127.0.0.1")) == 200
