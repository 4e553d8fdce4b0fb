"""The collector with the chart's configuration exports to a backend that asks for TLS and a token."""

import datetime as dt
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from infra.local_services.process import Server, accepts, free_ports
from infra.toolchain import go_programs
from sluicegate_operator.hooks.certificates import create_authority, issue
from tests.integration.charts.rendering import Charts, only_of_kind
from tests.integration.operator.api import eventually

pytestmark = pytest.mark.integration

_SPAN = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "epoch", "kind": 1}
_TRACE = {"resourceSpans": [{"scopeSpans": [{"spans": [_SPAN]}]}]}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """Yield an HTTPS server with a certificate of a private authority; `tokens` are what it received."""
    tokens: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            tokens.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.end_headers()

    now = dt.datetime.now(tz=dt.UTC)
    authority = create_authority("company", now)
    pair = issue(authority, "traces", ["traces"], 1, now)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "server.pem").write_bytes(pair.certificate + pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.tokens = tokens  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class ChartCollector(Server):
    """The collector of a rendered chart."""

    NAME, LOG, START_TIMEOUT_S = "the chart's collector", "collector.log", 30.0

    def __init__(self, folder: Path, config: str) -> None:
        super().__init__(folder)
        self.port, *others = free_ports(3)
        for port, own in zip((4318, 4317, 13133), (self.port, *others), strict=True):
            config = config.replace(f"0.0.0.0:{port}", f"127.0.0.1:{own}")
        self._config = config.replace("/etc/otelcol-tls", str(folder))

    def _environment(self) -> Mapping[str, str]:
        return os.environ | {"TOKEN": "s3cret"}

    def _prepare(self) -> list[str]:
        file = self._folder / "config.yaml"
        file.write_text(self._config)
        return [str(go_programs.COLLECTOR.build()), "--config", str(file)]

    def _ready(self) -> bool:
        return accepts(self.port)


def test_a_trace_reaches_a_backend_with_a_private_ca_and_a_token(
    charts: Charts, backend: ThreadingHTTPServer, tmp_path: Path
) -> None:
    if reason := go_programs.COLLECTOR.missing_reason():
        pytest.skip(reason)
    export = {
        "otlphttp": f"https://localhost:{backend.server_port}",
        "headers": {"Authorization": "Bearer ${env:TOKEN}"},
        "authoritySecret": "company",
    }
    documents = charts.render("collector", {"export": export, "file": {"enabled": False}})
    server = ChartCollector(tmp_path, only_of_kind(documents, "ConfigMap")["data"]["config.yaml"])
    server.start()
    try:
        request = Request(f"http://127.0.0.1:{server.port}/v1/traces", json.dumps(_TRACE).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=10):  # noqa: S310 - a fixed URL of http
            pass
        eventually(lambda: backend.tokens == ["Bearer s3cret"])  # type: ignore[attr-defined]
    finally:
        server.stop()
