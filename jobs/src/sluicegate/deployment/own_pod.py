"""The pod that this process runs in: a driver annotates it, and a standby watches it.

Two requests need no Kubernetes client, which a job's image would otherwise carry.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from sluicegate.deployment.environment import DriverVariable

_API_HOST = "KUBERNETES_SERVICE_HOST"
_API_PORT = "KUBERNETES_SERVICE_PORT"
_ACCOUNT_VARIABLE = "SLUICEGATE_SERVICEACCOUNT"
"""Overrides the folder of the service account, which has the files `token` and `ca.crt`."""

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_REQUEST_S = 5.0

_WATCH_S = 300
"""After this time the API server ends a watch, and a new one reads the token again."""

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""A watch that receives nothing notices within 11 s that the API server's machine has gone. By name: a
laptop's Python imports this module too, and that of macOS has no TCP_KEEPIDLE."""


class RequestRejected(Exception):
    """Raised when the API server rejects a request."""

    def __init__(self, status: int, body: str) -> None:
        self.status = status
        super().__init__(f"HTTP {status}: {body}")


@dataclass(frozen=True)
class OwnPod:
    """The pod that this process runs in.

    Args:
        host: host of the API server.
        port: port of the API server.
        namespace: namespace of the pod.
        name: name of the pod.
        uid: UID of the pod, so that a later pod of the same name is left alone; empty: not checked.
        account: folder with the service account's token and the cluster's CA certificate.
    """

    host: str
    port: int
    namespace: str
    name: str
    uid: str
    account: Path

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> OwnPod | None:
        """Return the pod that the environment names; None outside of a pod."""
        env = os.environ if environment is None else environment
        host, name = env.get(_API_HOST), env.get(DriverVariable.POD_NAME)
        namespace = env.get(DriverVariable.POD_NAMESPACE)
        if not (host and name and namespace):
            return None
        return cls(
            host=host,
            port=int(env.get(_API_PORT) or 443),
            namespace=namespace,
            name=name,
            uid=env.get(DriverVariable.POD_UID, ""),
            account=Path(env.get(_ACCOUNT_VARIABLE) or _ACCOUNT),
        )

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation by a JSON merge patch (RFC 7396).

        Raises:
            OSError, http.client.HTTPException: connection, certificate or response failed.
            RequestRejected: the API server rejected the request.
        """
        metadata: dict[str, object] = {"annotations": {key: value}}
        if self.uid:
            metadata["uid"] = self.uid  # the API server rejects a patch that would change it
        body = json.dumps({"metadata": metadata})
        with closing(self._connect(_REQUEST_S)) as connection:
            self._send(connection, "PATCH", f"/{quote(self.name)}", body).read()

    def watch_annotations(self) -> Iterator[Mapping[str, str]]:
        """Yield the annotations now and after each change, until the API server ends the watch.

        It ends each watch after some minutes. Nothing is yielded if the pod is gone or was replaced.

        Raises:
            OSError, http.client.HTTPException: connection, certificate or response failed.
            RequestRejected: the API server rejected the request.
            ValueError: the response is no JSON.
        """
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self.name}",
            "timeoutSeconds": _WATCH_S,
        }
        with closing(self._connect(_WATCH_S + _REQUEST_S)) as connection:
            for option, value in _KEEPALIVE.items():
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            response = self._send(connection, "GET", f"?{urlencode(query)}")
            while line := response.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RequestRejected(int(event["object"].get("code", 0)), line.decode())
                metadata = event["object"]["metadata"]
                if self.uid in ("", metadata["uid"]):
                    yield metadata.get("annotations") or {}

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        tls = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        connection = http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_s, context=tls
        )
        connection.connect()
        return connection

    def _send(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: str = ""
    ) -> http.client.HTTPResponse:
        """Send a request below the path of the namespace's pods; return the response that accepts it."""
        # both files are read for each request: the kubelet replaces them while the pod runs
        token = (self.account / "token").read_text(encoding="ascii").strip()
        connection.request(
            method,
            f"/api/v1/namespaces/{quote(self.namespace)}/pods{path}",
            body=body or None,
            headers={
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/merge-patch+json",
                "Accept": "application/json",
                "User-Agent": "sluicegate-driver",
            },
        )
        response = connection.getresponse()
        if response.status >= http.client.MULTIPLE_CHOICES:
            raise RequestRejected(response.status, response.read()[:300].decode(errors="replace"))
        return response
