"""The Kubernetes API as plain JSON over aiohttp, for a stand-in that writes many statuses.

Not a client for tests, which take `kubernetes`: nothing is checked before it is sent, and no object
is more than a dictionary, so that a thousand pods cost little. Called by `kubelet`.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from infra.embedded.kubernetes import KubernetesServer

Object = dict[str, Any]

STRATEGIC: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"

_AGAIN_S: Final = 0.2


class Refused(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the HTTP status and the server's words."""
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Rest:
    """One user's connections to an API server; to be made inside the loop that uses it."""

    def __init__(self, server: KubernetesServer, connections: int) -> None:
        """Open nothing yet."""
        trusts = ssl.create_default_context(cafile=str(server.certificate))
        self._session = aiohttp.ClientSession(
            server.url,
            headers={"Authorization": f"Bearer {server.token()}"},
            connector=aiohttp.TCPConnector(limit=connections, ssl=trusts),
        )

    async def __aenter__(self) -> Self:
        """Use it."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self._session.close()

    async def ask(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        """Send a request until a server answers; return the answer.

        Raises:
            Refused: the answer is an error.
        """
        while True:
            try:
                async with self._session.request(
                    method,
                    path,
                    data=None if body is None else json.dumps(body),
                    headers={"Content-Type": kind},
                ) as answer:
                    found: Object = await answer.json(content_type=None)
                    if answer.status >= 400:
                        raise Refused(answer.status, str(found.get("message", found)))
                    return found
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                await asyncio.sleep(_AGAIN_S)  # it is being restarted, as tests do

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, Object]]:
        """Yield what is there as ADDED, then LISTED, then every change; anew after a break.

        After LISTED an object that was yielded before and not since the last break is gone.
        """
        while True:
            try:
                async with self._session.get(path, params=query) as answer:
                    listed = await answer.json()
                    answer.raise_for_status()
                for item in listed["items"]:
                    yield "ADDED", item
                yield "LISTED", {}
                since = listed["metadata"]["resourceVersion"]
                async for change in self._changes(path, {**query, "resourceVersion": since}):
                    yield change
            except aiohttp.ClientError:
                await asyncio.sleep(_AGAIN_S)

    async def _changes(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, Object]]:
        timeout = aiohttp.ClientTimeout(total=None)
        asked = {**query, "watch": "true"}
        async with self._session.get(path, params=asked, timeout=timeout) as answer:
            answer.raise_for_status()
            buffer = b""
            async for chunk in answer.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return  # too old a version: list again
                    yield event["type"], event["object"]
