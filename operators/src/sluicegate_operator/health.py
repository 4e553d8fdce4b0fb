"""Health and metrics over HTTP.

/healthz   200; or 503 with the reason if a reconciliation does not end, which only a restart can end
/readyz    200 once all caches are synced; 503 with the reason if a permission or a CRD is missing, or
           if the API server does not answer, which no restart would mend
/metrics   for Prometheus
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

STUCK_S = 300.0
"""A reconciliation that takes this long will not end: each of its few requests times out after 10 s."""

SILENT_S = 300.0
"""The API server counts as unreachable after this time without an answer."""

Check = Callable[[], str]
"""Returns the problem, or an empty text."""


@dataclass
class Health:
    """Serves the checks of /healthz and /readyz, and metrics, on a port of all addresses; 0: any."""

    port: int
    registry: CollectorRegistry
    alive: Sequence[Check]
    ready: Sequence[Check]
    bound_port: int = 0
    """The port that it listens on, once it does."""

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/healthz", _handler(self.alive))
        app.router.add_get("/readyz", _handler(self.ready))
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, _listen(self.port)).start()
            self.bound_port = runner.addresses[0][1]
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = await asyncio.to_thread(generate_latest, self.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _listen(port: int) -> socket.socket:
    """Return a socket on a port of all addresses: probes and Prometheus come from other machines.

    A pod of a cluster with IPv6 only has no IPv4 address. Linux accepts IPv4 on the same socket.
    """
    if not socket.has_dualstack_ipv6():
        return socket.create_server(("", port))
    return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)


def _handler(checks: Sequence[Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        problems = [problem for problem in (check() for check in checks) if problem]
        if problems:
            text = "; ".join(problems) + "\n"
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text)
        return web.Response(text="ok\n")

    return answer
