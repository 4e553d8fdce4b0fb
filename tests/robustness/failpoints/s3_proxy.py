"""A proxy in front of an S3 endpoint that counts requests and breaks those that a test selects.

Runs on the loopback address in a thread of the test. Signatures stay valid because clients sign the
proxy's address and the proxy forwards that address unchanged.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

from infra.local_services import S3Endpoint

NOTHING_LISTED = (
    b'<?xml version="1.0"?><ListBucketResult><KeyCount>0</KeyCount>'
    b"<IsTruncated>false</IsTruncated></ListBucketResult>"
)
SLOW_S = 5.0
ERRORS = {
    "refuse": (403, "AccessDenied"),
    "unavailable": (503, "SlowDown"),
    "fail": (500, "InternalError"),
    "say-exists": (412, "PreconditionFailed"),
    "conflict": (409, "ConditionalRequestConflict"),
}
"""Effects that answer with an error, and forward nothing."""

_FIRST_KEY = re.compile(rb"<Key>([^<]*)</Key>")


@dataclass(frozen=True)
class Request:
    """A received request.

    Args:
        kind: PUT, GET, HEAD, DELETE or LIST.
        name: of the object below the bucket; the first one of a deletion of several; the prefix of a
            listing and '?'.
    """

    kind: str
    name: str


@dataclass
class Fault:
    """A fault of some requests.

    Args:
        kind: kind of the requests, as in `Request.kind`.
        name: regular expression for the object's name.
        effect: one of ERRORS; 'slow' forwards the request after SLOW_S; 'lose-reply' forwards the
            request and closes the connection; 'say-created' answers 200 if the store answered 412;
            'say-empty' lists nothing; 'hang' does not answer until the proxy stops.
        times: number of requests that fail.
    """

    kind: str
    name: str
    effect: str
    times: int = 1
    met: int = 0

    def meets(self, request: Request) -> bool:
        """Return whether the fault applies to a request; if so, count it."""
        if self.met >= self.times or request.kind != self.kind:
            return False
        if not re.search(self.name, request.name):
            return False
        self.met += 1
        return True


@dataclass
class S3Proxy:
    """The forwarded requests and the faults to inject. Created by `proxied`."""

    endpoint: S3Endpoint
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    waited_for: int = 0
    """Number of uploads whose client waited for an answer before it sent the file."""
    hanging: threading.Event = field(default_factory=threading.Event)
    """Set when a request was left without an answer."""
    ended: threading.Event = field(default_factory=threading.Event)

    def note(self, request: Request) -> str:
        """Count a request and return how it must fail."""
        with self.lock:
            self.requests.append(request)
            return next((f.effect for f in self.faults if f.meets(request)), "")

    def since(self, start: int) -> list[Request]:
        """Return the requests from index `start` on."""
        with self.lock:
            return self.requests[start:]


@contextmanager
def proxied(target: S3Endpoint) -> Iterator[S3Proxy]:
    """Yield a proxy in front of a store, whose endpoint must be plain HTTP."""
    upstream = urlsplit(target.endpoint).netloc

    class Handler(_Handler):
        host = upstream

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.proxy = S3Proxy(target.through_proxy(f"http://127.0.0.1:{server.server_port}"))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Handler.proxy
    finally:
        Handler.proxy.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """A client's connection, with its own connection to the store."""

    protocol_version = "HTTP/1.1"
    host: ClassVar[str]
    proxy: ClassVar[S3Proxy]

    def setup(self) -> None:
        super().setup()
        self._store = http.client.HTTPConnection(self.host, timeout=60)

    def finish(self) -> None:
        self._store.close()
        super().finish()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # a client that was killed
            self.close_connection = True

    def handle_expect_100(self) -> bool:
        with self.proxy.lock:
            self.proxy.waited_for += 1
        return super().handle_expect_100()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fault = self.proxy.note(_request(self.command, self.path, body))
        if fault in ERRORS:
            status, code = ERRORS[fault]
            text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>by the test</Message></Error>'
            self._answer(status, [("content-type", "application/xml")], text.encode())
            return
        if fault == "slow":
            time.sleep(SLOW_S)
        if fault == "say-empty":
            self._answer(200, [("content-type", "application/xml")], NOTHING_LISTED)
            return
        if fault == "hang":
            self.proxy.hanging.set()
            self.proxy.ended.wait()
            self.close_connection = True
            return
        self._store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for key, value in self.headers.items():
            if key.lower() not in ("connection", "expect"):
                self._store.putheader(key, value)
        self._store.endheaders(body or None)
        reply = self._store.getresponse()
        content = reply.read()
        if fault == "lose-reply":
            self.close_connection = True
            return
        if fault == "say-created" and reply.status == http.client.PRECONDITION_FAILED:
            self._answer(200, [("ETag", '"0"')], b"")
            return
        self._answer(reply.status, reply.getheaders(), content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for key, value in headers:
            if key.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif key.lower() not in (
                "connection",
                "keep-alive",
                "transfer-encoding",
                "content-length",
            ):
                self.send_header(key, value)
        self.send_header("content-length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Log nothing, because tests inspect the counted requests."""


def _request(method: str, path: str, body: bytes) -> Request:
    """Return what a client requests; obstore deletes by a POST with the names in its body."""
    parts = urlsplit(path)
    name = unquote(parts.path).lstrip("/").partition("/")[2]
    query = parse_qs(parts.query, keep_blank_values=True)
    if method == "POST" and "delete" in query and (key := _FIRST_KEY.search(body)):
        return Request("DELETE", unescape(key[1].decode()))
    if method == "GET" and ("list-type" in query or not name):
        return Request("LIST", query.get("prefix", [""])[0] + "?")
    return Request(method, name)
