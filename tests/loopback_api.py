"""A fake API server for one pod, over TLS on loopback; it records patches, and answers watches.

The socket and the certificate are real. Of the API it has only what a driver uses; it does not
apply patches as a kube-apiserver does.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.certificates import certificate


@dataclass
class Request:
    """A received patch."""

    path: str
    token: str
    kind: str
    body: dict[str, Any]

    @property
    def progress(self) -> dict[str, Any]:
        """The driver's progress in the patch."""
        progress: dict[str, Any] = json.loads(
            self.body["metadata"]["annotations"]["sluicegate.dev/progress"]
        )
        return progress


@dataclass
class ApiServer:
    """The received requests, and the status of the answers."""

    account: Path
    status: int = 200
    silent: threading.Event = field(default_factory=threading.Event)
    """While this is set, requests get no answer."""
    requests: list[Request] = field(default_factory=list)
    watches: list[list[dict[str, Any]]] = field(default_factory=list)
    """The events of each watch of the pod, in turn; a watch ends after its events."""
    port: int = 0

    def environment(self) -> dict[str, str]:
        """Return the variables of a pod of this cluster."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "SLUICEGATE_POD_NAME": "j-1-driver",
            "SLUICEGATE_POD_NAMESPACE": "team",
            "SLUICEGATE_POD_UID": "u-1",
            "SLUICEGATE_SERVICEACCOUNT": str(self.account),
        }

    def wait(self, count: int, timeout_s: float = 60.0) -> list[Request]:
        """Wait until a number of requests have arrived."""
        deadline = time.monotonic() + timeout_s
        while len(self.requests) < count:
            assert time.monotonic() < deadline, f"{len(self.requests)} requests, not {count}"
            time.sleep(0.01)
        return self.requests


_REPORTERS = ("sluicegate-progress", "sluicegate-executors")
"""Threads of a driver, in this process, that may still send a last request."""


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Yield a server with a service account folder for a driver.

    At the end it answers the reports that are under way. Without that, a connection may be reset
    between TCP's handshake and that of TLS, and there Python's `ssl` leaves a socket open.
    """
    account = folder / "serviceaccount"
    account.mkdir(parents=True)
    (account / "token").write_text("first\n")
    state = ApiServer(account)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(account))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.silent.clear()
        for reporter in [t for t in threading.enumerate() if t.name in _REPORTERS]:
            reporter.join(10.0)
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(state: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            token = self.headers["Authorization"].removeprefix("Bearer ")
            kind = self.headers["Content-Type"]
            state.requests.append(Request(self.path, token, kind, body))
            while state.silent.is_set():
                time.sleep(0.01)
            self.send_response(state.status)
            self.end_headers()
            self.wfile.write(b"{}")

        def do_GET(self) -> None:
            events = state.watches.pop(0) if state.watches else []
            self.send_response(state.status)
            self.end_headers()
            if state.status == HTTPStatus.OK:
                self.wfile.writelines(json.dumps(event).encode() + b"\n" for event in events)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


def _certificate(folder: Path) -> Path:
    """Write `ca.crt`, and the server's certificate with its key next to the folder."""
    issued = certificate("kubernetes")
    (folder / "ca.crt").write_bytes(issued.authority)
    file = folder.parent / "server.pem"
    file.write_bytes(issued.private + issued.public)
    return file
