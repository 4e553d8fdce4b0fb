"""A proxy in the worker process, through which its clients reach the volume's endpoint and nothing else.

obstore follows redirects and has no option against it. An endpoint that a tenant chose could redirect the
operator's requests to any server of its network, or be a name that resolves to one. The proxy connects only
to the endpoint's host and port, and to no address of this pod, its node's link or the API server.

It is not used without keys: the operator's own identity asks servers of the cloud, and its places are
listed by the administrator. Nor is it used where the administrator named a proxy, which then decides.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import socketserver
import threading
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import ClassVar
from urllib.parse import urlsplit

from sluicegate_operator.api.locations import is_reserved_address

log = logging.getLogger(__name__)

_PORTS = {"http": 80, "https": 443}
_HEAD_BYTES, _PIECE_BYTES = 64 << 10, 256 << 10
_CONNECT_TIMEOUT_S = 10.0

PROXY_VARIABLE = "AWS_PROXY_URL"
"""Variable from which obstore reads the URL of a proxy."""

Place = tuple[str, int]


class NoRoute(OSError):
    """Raised when a request must not leave this process."""


def restrict(environment: MutableMapping[str, str] = os.environ) -> None:
    """Start the proxy and let the AWS_* variables name it, if a volume's keys are used at an endpoint."""
    endpoint = environment.get("AWS_ENDPOINT") or environment.get("AWS_ENDPOINT_URL")
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} & {name.upper() for name in environment}
    if not endpoint or not environment.get("AWS_ACCESS_KEY_ID") or proxies:
        return
    parts = urlsplit(endpoint)
    permitted = (parts.hostname or "", parts.port or _PORTS[parts.scheme])
    handler = type("Relay", (_Relay,), {"permitted": permitted})
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment[PROXY_VARIABLE] = f"http://127.0.0.1:{server.server_address[1]}"


def connect(place: Place, permitted: Place) -> socket.socket:
    """Return a connection to a host and port, in the form of `permitted`.

    Raises:
        NoRoute: it is not the permitted one, or an address that no endpoint has.
        OSError: it cannot be reached.
    """
    if place != permitted:
        raise NoRoute("redirected to another server than the volume's endpoint")
    host, port = place
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]) for one in found]
    if any(map(_is_reserved, addresses)) and not _is_judged(host):
        raise NoRoute(
            "the endpoint's name resolves to an address of this pod, its node or the API server"
        )
    # to the address that was checked: a second look-up may have another answer
    error: OSError = NoRoute("the endpoint's name has no address")
    for address in addresses:
        try:
            return socket.create_connection((address, port), _CONNECT_TIMEOUT_S)
        except OSError as failed:
            error = failed
    raise error


def _is_judged(host: str) -> bool:
    """Return whether `controllers.limits` has judged a host by its text: the administrator listed it."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return host != os.environ.get("KUBERNETES_SERVICE_HOST")


def _is_reserved(text: str) -> bool:
    unmapped = text.removeprefix("::ffff:")
    return is_reserved_address(text) or unmapped == os.environ.get("KUBERNETES_SERVICE_HOST")


class _Relay(socketserver.BaseRequestHandler):
    """One connection of obstore: a tunnel for https, one request for http."""

    permitted: ClassVar[Place]

    def handle(self) -> None:
        client: socket.socket = self.request
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES:
            piece = client.recv(_HEAD_BYTES)
            if not piece:
                return
            head += piece
        method, target, rest = head.split(b" ", 2)
        url = urlsplit(f"//{target.decode()}" if method == b"CONNECT" else target.decode())
        place = (url.hostname or "", url.port or _PORTS.get(url.scheme, 0))
        try:
            server = connect(place, self.permitted)
        except OSError as error:
            status = (
                HTTPStatus.MISDIRECTED_REQUEST
                if isinstance(error, NoRoute)
                else HTTPStatus.BAD_GATEWAY
            )
            log.warning("no connection to %s:%d: %s", *place, error)
            client.sendall(
                f"HTTP/1.1 {status} {status.phrase}\r\nConnection: close\r\n\r\n".encode()
            )
            return
        with server:
            server.settimeout(None)
            if method == b"CONNECT":
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                path = f"{url.path or '/'}{'?' if url.query else ''}{url.query}".encode()
                # a second request on this connection could be for another host, and would not be seen
                rest = rest.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
                server.sendall(b" ".join((method, path, rest)))
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            _copy(server, client)


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one side ends."""
    try:
        while piece := source.recv(_PIECE_BYTES):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError as error:
        log.debug("a connection ended: %s", error)
