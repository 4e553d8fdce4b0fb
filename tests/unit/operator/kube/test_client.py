"""Requests and watches, against a server on the loopback address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import certifi
import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config

from sluicegate_operator.kube import client
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import LEASES, NAMESPACES, PODS
from tests.unit.operator.clocks import Clock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

WATCHES = 401
"""One watch for each of four types in each of a hundred namespaces, and one for nodes."""


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


def test_requests_are_counted_by_verb_and_resource() -> None:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async def scene(api: Api) -> None:
        await api.request("GET", PODS.path())
        await api.patch(PODS.path("shop", "clicks-1-driver", sub="status"), {})
        await api.request("PUT", LEASES.path("system", "operator"), {})
        await api.request("GET", NAMESPACES.path(name="shop"))
        async with api.watch(PODS.path("shop"), {"watch": "true"}):
            pass
        assert dict(api.requests) == {
            ("GET", "pods"): 1,
            ("PATCH", "pods"): 1,
            ("PUT", "leases"): 1,
            ("GET", "namespaces"): 1,
            ("WATCH", "pods"): 1,
        }

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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the monotonic clock of the client."""
    clock = Clock()
    monkeypatch.setattr(client, "time", clock)
    return clock


def test_connections_that_were_replaced_are_closed_once_no_watch_can_use_them(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server that is away for a day would leave thousands of them."""
    monkeypatch.setattr(client, "REQUEST_S", 0.02)

    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.json_response({})

    async def scene(api: Api) -> None:
        replaced = []
        for _ in range(20):
            with pytest.raises(ApiError, match="NoAnswer"):
                await api.request("GET", "/")
            replaced.append(api._old_sessions[-1][1])
            clock.now += 60
        assert [session.closed for session in replaced] == [True] * 10 + [False] * 10

    asyncio.run(served(handler, scene))


def test_a_token_is_read_again_after_a_minute_whatever_the_wall_clock_says(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wall clock that was set back by an hour would keep a token that has expired."""
    token = tmp_path / "token"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())

    async def scene() -> list[str | None]:
        seen = []
        token.write_text("first")
        api = await client.connect()
        settings = api._client.configuration
        for text, seconds in (("second", 59), ("second", 1), ("", 60), ("third", 60)):
            token.write_text(text)
            clock.now += seconds
            seen.append(await settings.get_api_key_with_prefix("BearerToken"))
        assert settings.host == "https://[fd00::1]:443"
        await api.close()
        return seen

    seen = asyncio.run(scene())
    assert seen == ["bearer first", "bearer second", "bearer second", "bearer third"]
