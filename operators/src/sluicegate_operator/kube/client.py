"""Requests to the API server through the asyncio half of the official client.

Objects are dictionaries. The official client's typed models are not used, because building them for
thousands of pods costs more than everything else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import incluster_config

from sluicegate_operator.kube.resource import Json, plural_of

log = logging.getLogger(__name__)

REQUEST_S = 10.0
"""Timeout of a request. A caller that concludes from a later list that an object does not exist must
wait much longer than this: a creation that timed out here may still take effect."""

SILENT_S = 80.0
"""Timeout between two events of a watch, after which the connection may be dead. The server sends
bookmarks every minute, but none for a resource type of which nothing has changed since it started."""

_OLD_SESSION_S = 600.0
"""After this time no request or watch uses connections that were replaced: the server ends a watch after
6 minutes, and a silent one ends after `SILENT_S`."""

_TOKEN_S = 60.0
"""How often the token of the service account is read again: the kubelet renews it long before it expires."""

_NO_LIMIT = 0
"""Connections to the API server: one for each watch, of which there are several for each namespace, and
one for each request in progress, which the workers of the queues bound. With a limit, the watches of
many namespaces would leave none for requests."""
_MAX_DEPTH = 100
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
"""A string, whose brackets do not count, or a bracket."""
_SILENT = "Silent"
_TLS_SHUTDOWN_S = 0.25


class ConfigError(Exception):
    """The kubeconfig, or the pod's service account, cannot be read."""


class ApiError(Exception):
    """The API server refused a request, or did not answer.

    Args:
        status: the HTTP status. 0 if there was no answer; the request may have taken effect.
        reason: the server's reason, such as 'AlreadyExists'.
        message: the server's message.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.status, self.reason, self.message = status, reason, message

    @property
    def missing(self) -> bool:
        """Whether the object does not exist."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """Whether the object has changed since it was read, or exists already."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def expired(self) -> bool:
        """Whether a watch must start again with a list."""
        return self.status == HTTPStatus.GONE

    @property
    def silent(self) -> bool:
        """Whether a watch had no event for `SILENT_S`, so that its connection may be dead."""
        return self.reason == _SILENT

    @property
    def forbidden(self) -> bool:
        """Whether this client lacks the permission."""
        return self.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED)


class Api:
    """Connection to one API server with one identity."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.requests: Counter[tuple[str, str]] = Counter()
        """Requests sent since the start, by verb and the plural name of the resource; a watch is one."""
        self._old_sessions: list[tuple[float, aiohttp.ClientSession]] = []
        """Those that were replaced, oldest first, and when."""
        self._renewed = -REQUEST_S

    async def close(self) -> None:
        """Close all connections."""
        await self._close_old_sessions(age_s=0.0)
        await self._client.close()  # type: ignore[no-untyped-call]
        # the TLS shutdown takes place after that (aiohttp's documentation, "Graceful Shutdown")
        await asyncio.sleep(_TLS_SHUTDOWN_S)

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

        A write has the same timeout on the server, which otherwise goes on with it for 34 s.

        Raises:
            ApiError: the request was refused, or there was no answer within `REQUEST_S`.
        """
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        self.requests[method, plural_of(path)] += 1
        if method != "GET":
            query = {**(query or {}), "timeout": f"{REQUEST_S:.0f}s"}
        response = await self._send(method, path, body, query, content_type, timeout)
        try:
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(method, path, error) from error
        return _decode(response.status, text)

    async def patch(self, path: str, body: Json) -> Json:
        """Change an object by a JSON merge patch (RFC 7386)."""
        kind = "application/merge-patch+json"
        return await self.request("PATCH", path, body, content_type=kind)

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a watch. Its events end when the server closes it.

        Raises:
            ApiError: the watch was refused, or had no event for `SILENT_S`.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=SILENT_S)
        self.requests["WATCH", plural_of(path)] += 1
        response = await self._send("GET", path, None, query, "application/json", timeout)
        try:
            if response.status != HTTPStatus.OK:
                _decode(response.status, await response.read())
            yield _events(response, path)
        finally:
            connection = response.connection
            if connection is not None and connection.transport is not None:
                # no TLS shutdown: a server that is sending does not take part in it
                connection.transport.abort()
            response.close()

    def _no_answer(self, method: str, path: str, error: BaseException) -> ApiError:
        """Return the error for a request without an answer, and replace the connections.

        Open connections may be dead too, and each would cost a timeout in turn. Requests and watches
        in progress keep their connections until they end.
        """
        transport = self._client.rest_client
        since = time.monotonic() - self._renewed
        if isinstance(error, TimeoutError) and transport.pool_manager and since > REQUEST_S:
            log.warning("the API server did not answer within %.0f s; reconnecting", REQUEST_S)
            self._renewed = time.monotonic()
            self._old_sessions.append((self._renewed, transport.pool_manager))
            transport.pool_manager = None
        return _unanswered(method, path, error)

    async def _close_old_sessions(self, age_s: float) -> None:
        while self._old_sessions and time.monotonic() - self._old_sessions[0][0] >= age_s:
            _, session = self._old_sessions.pop(0)
            await session.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str] | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        await self._close_old_sessions(_OLD_SESSION_S)
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
            raise self._no_answer(method, path, error) from error
        response: aiohttp.ClientResponse = answer.response
        return response


async def _events(response: aiohttp.ClientResponse, path: str) -> AsyncIterator[Json]:
    """Yield a watch's events; raises like `Api.watch`."""
    try:
        async for line in response.content:
            event: Json = parse_json(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise ApiError(
                    status.get("code", 500), status.get("reason", ""), status.get("message", "")
                )
            yield event
    except TimeoutError as error:
        raise ApiError(0, _SILENT, f"no event of {path} for {SILENT_S:.0f} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unanswered("WATCH", path, error) from error


def parse_json(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON of any depth: values nested deeper than `_MAX_DEPTH` become null if Python cannot parse it.

    The API server stores objects that nest up to 10,000 deep where a schema preserves unknown fields, as for
    pod templates. Such an object must not make the list that contains it unreadable. No valid pod is cut.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_cut(text))


def _cut(text: bytes) -> bytes:
    kept, depth, position = bytearray(), 0, 0
    for token in _STRUCTURE.finditer(text):
        character = token.group()
        if character in b"[{":
            depth += 1
            if depth == _MAX_DEPTH:
                kept += text[position : token.start()] + b"null"
        elif character in b"]}":
            depth -= 1
            if depth == _MAX_DEPTH - 1:
                position = token.end()
    return bytes(kept) + (text[position:] if depth < _MAX_DEPTH else b"")


def _decode(status: int, text: bytes) -> Json:
    """Return the body of an answer, or raise the error that it is."""
    try:
        body = parse_json(text)
    except ValueError:
        body = {"message": text[:200].decode(errors="replace")}
    if status >= HTTPStatus.BAD_REQUEST:
        details = body if isinstance(body, dict) else {"message": str(body)}
        reason = details.get("reason") or f"HTTP {status}"
        raise ApiError(status, reason, details.get("message", ""))
    answer: Json = body
    return answer


def _unanswered(method: str, path: str, error: BaseException) -> ApiError:
    return ApiError(0, "NoAnswer", f"{method} {path}: {type(error).__name__} {error}".strip())


async def connect(kubeconfig: str = "") -> Api:
    """Return a connection to the API server, by a kubeconfig or the service account of this pod.

    Raises:
        ConfigError: the kubeconfig cannot be read, or this process does not run in a pod.
    """
    settings = Configuration()
    try:
        if kubeconfig:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig, client_configuration=settings
            )
        else:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=settings, try_refresh_token=False
            )
            _reload_token(settings)
    except (config.ConfigException, OSError, ssl.SSLError) as error:
        raise ConfigError(str(error)) from error
    return api_of(settings)


def _reload_token(settings: Configuration) -> None:
    """Let the token be read again every `_TOKEN_S`, by the monotonic clock.

    The official client measures by the wall clock. One that was set back would keep an expired token.
    """
    read_at = time.monotonic()

    def reload(current: Configuration) -> None:
        nonlocal read_at
        if time.monotonic() - read_at < _TOKEN_S:
            return
        read_at = time.monotonic()
        try:
            (token,) = Path(incluster_config.SERVICE_TOKEN_FILENAME).read_text().split()
        except (OSError, ValueError) as error:
            log.warning("the token cannot be read, the former one is used: %s", error)
            return
        current.api_key["BearerToken"] = f"bearer {token}"

    settings.refresh_api_key_hook = reload  # type: ignore[assignment]


def api_of(settings: Configuration) -> Api:
    """Return a connection with the official client's settings."""
    settings.connection_pool_maxsize = _NO_LIMIT
    return Api(ApiClient(settings))
