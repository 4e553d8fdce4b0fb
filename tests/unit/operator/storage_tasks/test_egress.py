"""What a volume's endpoint can make a worker process do: nothing outside of itself, and say nothing of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import pytest

from sluicegate.errors import StoreUnavailable
from sluicegate_operator.reconcile.storage_tasks import CheckVolume, Measure, Task
from sluicegate_operator.storage_tasks.__main__ import without_answer
from sluicegate_operator.storage_tasks.runner import TaskFailed, run
from sluicegate_operator.storage_tasks.worker.egress import NoRoute, connect, restrict

pytestmark = pytest.mark.integration

_WORDS = b"<Error><Code>NoSuchBucket</Code><Message>the token of the cluster</Message></Error>"


class Endpoint:
    """A web server that a tenant named as its store: it redirects, or answers with an error."""

    def __init__(self, redirects_to: str = "") -> None:
        self.requests: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                endpoint.requests.append(self.command)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                # PUT of a bucket is minio's request, all others are obstore's
                redirects = redirects_to and (self.command == "PUT") == ("/create" in redirects_to)
                self.send_response(307 if redirects else 404)
                self.send_header("Location", redirects_to)
                self.send_header("Content-Length", str(0 if redirects else len(_WORDS)))
                self.end_headers()
                if not redirects:
                    self.wfile.write(_WORDS)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def environment(self) -> Mapping[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "tenant", "AWS_SECRET_ACCESS_KEY": "tenants-secret"}
        return {"AWS_ENDPOINT": self.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "r", **keys}


@pytest.fixture
def internal() -> Iterator[Endpoint]:
    with Endpoint() as server:
        yield server


def failure(task: Task, endpoint: Endpoint) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        asyncio.run(run(task, endpoint.environment(), 60.0))
    return caught.value


@pytest.mark.parametrize(
    ("task", "path"),
    [
        (Measure("s3://bucket/p"), "/latest/meta-data"),
        (CheckVolume("s3://bucket/p", make_bucket=True, region="r", access="a"), "/create"),
    ],
    ids=["obstore", "minio"],
)
def test_security_m3_a_redirect_is_not_followed(internal: Endpoint, task: Task, path: str) -> None:
    with Endpoint(redirects_to=internal.url + path) as endpoint:
        assert failure(task, endpoint).kind == "StoreUnavailable"
        assert endpoint.requests
    assert internal.requests == []


def test_security_m3_an_error_does_not_repeat_the_endpoints_words(internal: Endpoint) -> None:
    check = CheckVolume("s3://bucket/p", make_bucket=False, region="r", access="a")
    for task in (check, Measure("s3://bucket/p")):
        error = failure(task, internal)
        assert "token of the cluster" not in f"{error.what}{error.data}{error.do}"
        assert error.what.endswith(("NoSuchBucket)", "it existed before"))


def test_an_error_of_our_own_keeps_its_text() -> None:
    own = StoreUnavailable("not empty: something keeps writing", data="d", do="o")
    assert without_answer(own) == own.what


def test_security_m3_a_name_of_an_internal_address_is_not_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`controllers.limits` sees the name only, and a look-up may have another answer later."""
    answers = {
        "innocent.example": "169.254.169.254",
        "six.example": "fd00:ec2::254",
        "api.example": "10.96.0.1",
        "mapped.example": "::ffff:10.96.0.1",
    }
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda host, *_, **__: [(0, 0, 0, "", (answers.get(host, host), 0))]
    )
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    for host in (*answers, "10.96.0.1"):
        with pytest.raises(NoRoute, match="this pod, its node or the API server"):
            connect((host, 443), (host, 443))


@pytest.mark.parametrize(
    "left_out", [{"AWS_ENDPOINT": ""}, {"AWS_ACCESS_KEY_ID": ""}, {"https_proxy": "http://proxy"}]
)
def test_amazon_the_operators_identity_and_a_named_proxy_are_left_alone(
    left_out: dict[str, str],
) -> None:
    environment = {"AWS_ENDPOINT": "http://store", "AWS_ACCESS_KEY_ID": "a", **left_out}
    restrict(environment)
    assert "AWS_PROXY_URL" not in environment


def test_security_m3_only_the_endpoint_is_connected() -> None:
    for place in (("127.0.0.1", 80), ("169.254.169.254", 9000)):
        with pytest.raises(NoRoute, match="another server"):
            connect(place, ("127.0.0.1", 9000))
