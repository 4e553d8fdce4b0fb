"""Asynchronous client of the Kubernetes API for the simulated kubelet.

It is cheap enough for the statuses of a thousand pods: objects are dictionaries and nothing is validated.
Tests themselves use `api`.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from infra.local_services.kube_apiserver import KubernetesServer

Object = dict[str, Any]

STRATEGIC: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"

_RETRY_DELAY_S: Final = 0.2
_TIMEOUT_S: Final = 30.0


class ApiRejection(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        """Store the HTTP status and the server's message."""
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Rest:
    """Connections of one user to an API server. Create it inside the event loop that uses it."""

    def __init__(self, server: KubernetesServer, connections: int) -> None:
        """Prepare a session; no connection is opened yet."""
        tls_context = ssl.create_default_context(cafile=str(server.certificate))
        self._session = aiohttp.ClientSession(
            server.url,
            headers={"Authorization": f"Bearer {server.token()}"},
            connector=aiohttp.TCPConnector(limit=connections, ssl=tls_context),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
        )
        self._in_progress: set[asyncio.Task[Object]] = set()
        self._closing = False

    async def __aenter__(self) -> Self:
        """Return this client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the requests in progress, and close all connections."""
        self._closing = True
        await asyncio.gather(*self._in_progress, return_exceptions=True)
        await self._session.close()
        await asyncio.sleep(0)  # aborted connections are closed in the next iteration of the loop

    async def request(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        """Send a request and return the answer; retry while the server does not answer.

        The request continues when the caller is cancelled, because an interrupted one would leave a
        connection open.

        Raises:
            ApiRejection: the answer is an error.
        """
        task = asyncio.create_task(self._send(method, path, body, kind))
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)
        return await asyncio.shield(task)

    async def _send(self, method: str, path: str, body: Object | None, kind: str) -> Object:
        while True:
            try:
                async with self._session.request(
                    method,
                    path,
                    data=None if body is None else json.dumps(body),
                    headers={"Content-Type": kind},
                ) as answer:
                    response: Object = await answer.json(content_type=None)
                    if answer.status >= 400:
                        raise ApiRejection(answer.status, str(response.get("message", response)))
                    return response
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError):
                if self._closing:
                    raise
                await asyncio.sleep(_RETRY_DELAY_S)  # tests restart the server

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, Object]]:
        """Yield existing objects as ADDED, then LISTED, then every change; start again after an error.

        An object that was not yielded between an error and the next LISTED no longer exists.
        """
        while True:
            try:
                async with self._session.get(path, params=query) as answer:
                    listed = await answer.json()
                    answer.raise_for_status()
                for item in listed["items"]:
                    yield "ADDED", item
                yield "LISTED", {}
                version = listed["metadata"]["resourceVersion"]
                async for change in self._changes(path, {**query, "resourceVersion": version}):
                    yield change
            except aiohttp.ClientError:
                await asyncio.sleep(_RETRY_DELAY_S)

    async def _changes(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, Object]]:
        timeout = aiohttp.ClientTimeout(total=None)
        parameters = {**query, "watch": "true"}
        async with self._session.get(path, params=parameters, timeout=timeout) as answer:
            answer.raise_for_status()
            connection = answer.connection
            try:
                buffer = b""
                async for chunk in answer.content.iter_any():
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            return  # the resourceVersion has expired: list again
                        yield event["type"], event["object"]
            finally:
                if connection and connection.transport:
                    connection.transport.abort()  # a TLS shutdown would outlive the loop
