"""Requests to the API server, as dictionaries, by the official client's asyncio half.

The client's typed half is not used: making its models of thousands of pods costs more than all else.
Not here: what is asked for. Called by everything in `cluster` and `service`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.resources.declaring import GROUP, VERSION

log = logging.getLogger(__name__)

Json = dict[str, Any]

REQUEST_S = 10.0
"""How long a request may take. Well below `reconcile.passes.LANDS_S`: a creation that was given up
must not land after its absence is believed."""

SILENT_S = 80.0
"""A watch that says nothing for this long may be dead. The server sends bookmarks every minute, but
none of a kind of which nothing has changed since it started."""

_CONNECTIONS = 64
_SILENT = "Silent"
_GOODBYE_S = 0.25


class ApiError(Exception):
    """The API server refused a request, or did not answer.

    Args:
        status: of HTTP; 0 if there was no answer, and the request may have been carried out.
        reason: the server's word, such as 'AlreadyExists'.
        message: its sentence.
    """

    expected = True
    """Of networks and rivals; where in our code it was met says nothing."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.status, self.reason, self.message = status, reason, message

    @property
    def missing(self) -> bool:
        """Whether there is no such object."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """Whether the object is another than the one that was read, or is there already."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def expired(self) -> bool:
        """Whether a watch must begin again with a list."""
        return self.status == HTTPStatus.GONE

    @property
    def silent(self) -> bool:
        """Whether a watch has said nothing for `SILENT_S`, so that it may be dead."""
        return self.reason == _SILENT

    @property
    def forbidden(self) -> bool:
        """Whether the operator lacks the right."""
        return self.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED)


class Api:
    """One API server, reached with one identity."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._old: list[aiohttp.ClientSession] = []
        self._renewed = -REQUEST_S

    async def close(self) -> None:
        """Close all connections."""
        for session in self._old:
            await session.close()
        await self._client.close()  # type: ignore[no-untyped-call]
        # TLS says good-bye after that (aiohttp's documentation, "Graceful Shutdown")
        await asyncio.sleep(_GOODBYE_S)

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a request and return the answer.

        Raises:
            ApiError: it was refused, or there was no answer in `REQUEST_S`.
        """
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        response = await self._send(method, path, body, query, content_type, timeout)
        try:
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._failed(method, path, error) from error
        return _answered(response.status, text)

    async def patch(self, path: str, body: Json) -> Json:
        """Merge something into an object (RFC 7386)."""
        kind = "application/merge-patch+json"
        return await self.request("PATCH", path, body, content_type=kind)

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a watch; its events end when the server closes it.

        Raises:
            ApiError: it was refused, or went silent.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=SILENT_S)
        response = await self._send("GET", path, None, query, "application/json", timeout)
        try:
            if response.status != HTTPStatus.OK:
                _answered(response.status, await response.read())
            yield _events(response, path)
        finally:
            connection = response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()  # a server that is sending does not say good-bye
            response.close()

    def _failed(self, method: str, path: str, error: BaseException) -> ApiError:
        """Return an error for a request without an answer; what follows is sent on new connections.

        Those that are kept open may lead nowhere too, and each would be waited for in turn. What is
        under way, such as a watch, keeps its own until it ends.
        """
        transport = self._client.rest_client
        since = time.monotonic() - self._renewed
        if isinstance(error, TimeoutError) and transport.pool_manager and since > REQUEST_S:
            log.warning("the API server has not answered in %.0f s: connecting anew", REQUEST_S)
            self._renewed = time.monotonic()
            self._old.append(transport.pool_manager)
            transport.pool_manager = None
        return _unanswered(method, path, error)

    async def _send(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str] | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        prepared = await self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method, prepared[1], headers=prepared[2], body=body, _request_timeout=limits
            )
        except ApiException as error:
            raise ApiError(error.status or 0, "Refused", str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._failed(method, path, error) from error
        response: aiohttp.ClientResponse = answer.response
        return response


async def _events(response: aiohttp.ClientResponse, path: str) -> AsyncIterator[Json]:
    """Yield a watch's events.

    Raises:
        ApiError: the server says that the watch cannot go on, or nothing more came.
    """
    try:
        async for line in response.content:
            event: Json = json.loads(line)
            if event["type"] == "ERROR":
                said = event["object"]
                raise ApiError(
                    said.get("code", 500), said.get("reason", ""), said.get("message", "")
                )
            yield event
    except TimeoutError as error:
        raise ApiError(0, _SILENT, f"nothing was heard of {path} for {SILENT_S:.0f} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unanswered("WATCH", path, error) from error


def _answered(status: int, text: bytes) -> Json:
    try:
        said = json.loads(text)
    except ValueError:
        said = {"message": text[:200].decode(errors="replace")}
    if status >= HTTPStatus.BAD_REQUEST:
        message = said.get("message", "") if isinstance(said, dict) else str(said)
        reason = said.get("reason", "") if isinstance(said, dict) else ""
        raise ApiError(status, reason or f"HTTP {status}", message)
    answer: Json = said
    return answer


def _unanswered(method: str, path: str, error: BaseException) -> ApiError:
    return ApiError(0, "NoAnswer", f"{method} {path}: {type(error).__name__} {error}".strip())


async def connect(kubeconfig: str = "") -> Api:
    """Return the API server that a kubeconfig names; by default the cluster that the pod runs in.

    Raises:
        SettingsInvalid: there is no such file, or this is not a pod.
    """
    settings = Configuration()
    try:
        if kubeconfig:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig, client_configuration=settings
            )
        else:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=settings
            )
    except (config.ConfigException, OSError, ssl.SSLError) as error:
        raise SettingsInvalid(
            f"the API server's address cannot be read: {error}",
            data="nothing was started",
            do="run in a pod with a service account, or give --kubeconfig FILE",
        ) from error
    settings.connection_pool_maxsize = _CONNECTIONS
    return Api(ApiClient(settings))


def path_of(plural: str, namespace: str = "", name: str = "", *, sub: str = "") -> str:
    """Return the path of a collection, an object, or an object's subresource.

    Args:
        plural: of a kind of ours, or of the core, coordination or policy groups that are used here.
        namespace: empty for all namespaces, and for nodes.
        name: empty for the collection.
        sub: such as 'status'.
    """
    base = _GROUPS.get(plural, f"/apis/{GROUP}/{VERSION}")
    parts = [base, *(("namespaces", namespace) if namespace else ()), plural, name, sub]
    return "/".join(part for part in parts if part)


_GROUPS = {
    **dict.fromkeys(("pods", "nodes", "events", "secrets", "namespaces"), "/api/v1"),
    "leases": "/apis/coordination.k8s.io/v1",
}
