"""Requests and watches, against a server on the loopback address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from aiohttp import web
from kubernetes.aio.client import Configuration

from sluicegate_operator.kube import client
from sluicegate_operator.kube.client import Api

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

NAMESPACES, WATCHES = 100, 401
"""One watch for each of four types in each namespace, and one for nodes."""


async def served(handler: Handler, scene: Callable[[Api], Awaitable[None]]) -> None:
    """Run a scene with a connection to a server."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    settings = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    api = client.api_of(settings)
    try:
        await scene(api)
    finally:
        await api.close()
        await runner.cleanup()


def test_the_watches_of_a_hundred_namespaces_leave_connections_for_requests() -> None:
    """A watch holds its connection for minutes, and without requests there is no leader."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"answered": True})
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response

    async def scene(api: Api) -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(20):
            for number in range(WATCHES):
                await stack.enter_async_context(api.watch(f"/{number}", {"watch": "true"}))
            assert await api.request("GET", "/lease") == {"answered": True}

    asyncio.run(served(handler, scene))


def test_the_server_ends_a_write_that_the_client_no_longer_waits_for() -> None:
    """A creation that lands later, when its absence is believed, would be a second driver."""
    seen: dict[str, str] = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        seen[request.method] = request.query.get("timeout", "")
        return web.json_response({})

    async def scene(api: Api) -> None:
        for method in ("GET", "POST", "PUT", "DELETE"):
            await api.request(method, "/", {})
        await api.patch("/", {})

    asyncio.run(served(handler, scene))
    assert seen == {"GET": "", "POST": "10s", "PUT": "10s", "DELETE": "10s", "PATCH": "10s"}
