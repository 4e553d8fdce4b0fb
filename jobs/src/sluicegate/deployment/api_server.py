"""A client of the Kubernetes API server for a process in a pod, with the pod's service account.

A few requests need no Kubernetes client, which a job's image would otherwise carry.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MERGE_PATCH = "application/merge-patch+json"
"""The content type of a JSON merge patch (RFC 7396)."""

_HOST = "KUBERNETES_SERVICE_HOST"
_PORT = "KUBERNETES_SERVICE_PORT"
_ACCOUNT_VARIABLE = "SLUICEGATE_SERVICEACCOUNT"
"""Overrides the folder of the service account, which has the files `token` and `ca.crt`."""

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""A watch that receives nothing notices within 11 s that the API server's machine has gone. By name: a
laptop's Python imports this module too, and that of macOS has no TCP_KEEPIDLE."""


class RequestRejected(Exception):
    """Raised when the API server rejects a request.

    Args:
        status: the HTTP status.
        body: the answer, in the best case a `Status` of Kubernetes.
    """

    def __init__(self, status: int, body: str) -> None:
        self.status, self.message = status, _message(body)[:1000]
        super().__init__(f"HTTP {status}: {self.message}")


@dataclass(frozen=True)
class ApiServer:
    """The API server of the cluster that this process runs in.

    Args:
        host: its host.
        port: its port.
        account: folder with the service account's token and the cluster's CA certificate.
        user_agent: names this program in the API server's audit log.
    """

    host: str
    port: int
    account: Path
    user_agent: str

    @classmethod
    def of_pod(
        cls, user_agent: str, environment: Mapping[str, str] | None = None
    ) -> ApiServer | None:
        """Return the API server that a pod's environment names; None outside of a pod."""
        env = os.environ if environment is None else environment
        host = env.get(_HOST)
        if not host:
            return None
        account = Path(env.get(_ACCOUNT_VARIABLE) or _ACCOUNT)
        return cls(host, int(env.get(_PORT) or 443), account, user_agent)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        content_type: str = "application/json",
        headers: Iterable[tuple[str, str]] = (),
        timeout_s: float,
    ) -> dict[str, Any]:
        """Send a request and return the object in its answer.

        Args:
            method: of HTTP.
            path: with its query; the caller quotes names.
            body: an object to send as JSON.
            content_type: of the body.
            headers: more headers; a name may occur several times.
            timeout_s: for the connection and for each read, in seconds.

        Raises:
            OSError, http.client.HTTPException: connection, certificate or response failed.
            RequestRejected: the API server rejected the request.
            ValueError: a header or the answer is malformed.
        """
        content = b"" if body is None else json.dumps(body).encode()
        given = (
            {"Content-Type": content_type, "Content-Length": str(len(content))} if content else {}
        )
        with closing(self._connect(timeout_s)) as connection:
            response = self._send(connection, method, path, (*given.items(), *headers), content)
            loaded: dict[str, Any] = json.loads(response.read())
        return loaded

    def watch(self, path: str, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Yield the objects of a watch, now and after each change, until the API server ends it.

        Args:
            path: with a query that has `watch=true`.
            timeout_s: for the connection and for each read, in seconds; longer than the watch.

        Raises:
            OSError, http.client.HTTPException: connection, certificate or response failed.
            RequestRejected: the API server rejected the request.
            ValueError: an event is no JSON.
        """
        with closing(self._connect(timeout_s)) as connection:
            for option, value in _KEEPALIVE.items():
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            response = self._send(connection, "GET", path)
            while line := response.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RequestRejected(int(event["object"].get("code", 0)), line.decode())
                yield event["object"]

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        tls = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        connection = http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_s, context=tls
        )
        connection.connect()
        return connection

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]] = (),
        content: bytes = b"",
    ) -> http.client.HTTPResponse:
        """Send a request; return the response that accepts it."""
        # token and certificate are read for each request: the kubelet replaces them while the pod runs
        token = (self.account / "token").read_text(encoding="ascii").strip()
        connection.putrequest(method, path)
        own = (
            ("Authorization", f"Bearer {token}"),
            ("Accept", "application/json"),
            ("User-Agent", self.user_agent),
        )
        for name, value in (*own, *headers):
            connection.putheader(name, value)
        connection.endheaders(content)
        response = connection.getresponse()
        if response.status >= http.client.MULTIPLE_CHOICES:
            raise RequestRejected(response.status, response.read().decode(errors="replace"))
        return response


def _message(body: str) -> str:
    """Return the message of a `Status`; any other answer as it is."""
    try:
        return str(json.loads(body)["message"])
    except (LookupError, TypeError, ValueError):
        return body.strip()
