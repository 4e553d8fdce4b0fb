"""The operator as seen from outside: is it alive, is it ready, what does it count.

    /healthz   200, or 503 with the reason: nothing has moved for too long, so a restart may help
    /readyz    200 once everything was read; 503 with the reason where a right or a definition is missing
    /metrics   for Prometheus

Not here: what is counted (`service.metrics`). Called by `service.operator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

STUCK_S = 120.0
"""A resource that has waited, or been looked at, for so long: reconciling stands still. Every request
to the API server ends long before."""

SILENT_S = 300.0
"""The API server has not been heard of for so long."""

Check = Callable[[], str]
"""Returns what is wrong, or nothing."""


@dataclass
class Health:
    """Serves health and metrics.

    Args:
        port: to listen on, on all addresses; 0: any.
        registry: what is counted.
        alive: what must be right for the process to be left alone.
        ready: what must be right for it to be of use.
        bound: the port that it listens on, once it does.
    """

    port: int
    registry: CollectorRegistry
    alive: Sequence[Check]
    ready: Sequence[Check]
    bound: int = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/healthz", _answers(self.alive))
        app.router.add_get("/readyz", _answers(self.ready))
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            # probes and Prometheus come from other machines
            site = web.TCPSite(runner, "0.0.0.0", self.port)  # noqa: S104
            await site.start()
            self.bound = runner.addresses[0][1]
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = await asyncio.to_thread(generate_latest, self.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answers(checks: Sequence[Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        wrong = [said for said in (check() for check in checks) if said]
        if wrong:
            text = "; ".join(wrong) + "\n"
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text)
        return web.Response(text="ok\n")

    return answer
