"""Fixtures for all tests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from infra.local_services import RedisEndpoint, RedisServer, S3Endpoint, S3Server, Services
from infra.local_services.services import S3_VARIABLE
from infra.local_services.valkey import REDIS_VARIABLE, redis_command, redis_missing_reason
from infra.toolchain import go_programs
from infra.toolchain.maven import folder as jars_folder
from sluicegate.spark.conf import JARS_VARIABLE

pytest_plugins = ["tests.required"]


def pytest_configure() -> None:
    """Set the jars for all sessions of this process, because a JVM's class path cannot change.

    A shell starts a command in the background with SIGINT ignored, and so would the programs that
    tests start and interrupt. A generated example may take any time: on a busy machine the limits of
    Hypothesis fail tests.
    """
    os.environ.setdefault(JARS_VARIABLE, str(jars_folder("spark")))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    slow = hypothesis.HealthCheck.too_slow
    hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[slow])
    hypothesis.settings.load_profile("busy")


def pytest_report_header() -> list[str]:
    """Report the servers of the tests, and which tests are skipped."""
    kafka, mysql, s3 = (
        os.environ.get(f"SLUICEGATE_{name}", "") for name in ("KAFKA", "MYSQL", "S3")
    )
    return [
        f"Kafka: {kafka or 'embedded broker'}",
        f"MySQL: {mysql.rpartition('@')[2] or 'embedded MariaDB, no real MySQL (SLUICEGATE_MYSQL)'}",
        f"Redis: {_redis()}",
        f"S3: {s3 or _embedded_s3()}",
        f"Kubernetes: {_embedded_kubernetes()}",
    ]


def _redis() -> str:
    url, command = os.environ.get(REDIS_VARIABLE), redis_command()
    if url:
        return url.rpartition("@")[2]
    return f"embedded {command.name}" if command else f"not tested. {redis_missing_reason()}"


def _embedded_s3() -> str:
    reason = go_programs.VERSITYGW.missing_reason()
    return f"not tested: {reason}" if reason else "embedded versitygw"


def _embedded_kubernetes() -> str:
    reason = go_programs.api_server_missing_reason()
    return f"not tested: {reason}" if reason else "embedded kube-apiserver and etcd"


SERVERS = {"services", "redis", "own_redis", "bucket", "store_root", "api", "own_api"}
"""Fixtures that use a real server."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that request a server, so that `-m "not integration"` skips them."""
    for item in items:
        if isinstance(item, pytest.Function) and SERVERS & set(item.fixturenames):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """Yield one Kafka and one MySQL for all tests; use unique names of topics and tables.

    A test that stops or kills a server starts its own (`Services()`), so that no other test's
    outcome depends on the order.
    """
    with Services() as running:
        yield running


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisEndpoint]:
    """Yield one Redis for all tests; name keys after the test. It needs no Kafka and no MySQL."""
    url = os.environ.get(REDIS_VARIABLE)
    if url:
        yield RedisEndpoint(url)
        return
    server = started_redis(tmp_path_factory.mktemp("redis"))
    yield server.endpoint
    server.stop()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Yield a Redis that a test may stop and kill."""
    server = started_redis(tmp_path)
    yield server
    server.stop()


def started_redis(folder: Path) -> RedisServer:
    """Start a server, or skip the test if this machine has no server binary."""
    if redis_command() is None:
        pytest.skip(
            "there is no server binary for this machine; the header of the test run has the reason"
        )
    server = RedisServer(folder)
    server.start()
    return server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Yield an S3 server with a user for one prefix, who has the rights of a CheckpointVolume's user."""
    reason = go_programs.VERSITYGW.missing_reason()
    if reason:
        pytest.skip(reason)
    users = {"checkpoints": "s3://sluicegate/checkpoints"}
    server = S3Server(tmp_path_factory.mktemp("s3"), users=users)
    server.start()
    try:
        server.make_buckets()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def bucket(request: pytest.FixtureRequest) -> Iterator[S3Endpoint]:
    """Yield an S3 prefix and set this process's AWS_* variables; use unique checkpoint names.

    Its user has no rights outside the prefix. SLUICEGATE_S3=s3://bucket/prefix with the variables of
    an endpoint names a real one.
    """
    url = os.environ.get(S3_VARIABLE)
    if url:
        yield S3Endpoint(url.rstrip("/"), *_named_endpoint())
        return
    user = request.getfixturevalue("s3_server").users["checkpoints"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in user.environment().items():
            patch.setenv(name, value)
        yield user


@pytest.fixture(scope="session")
def store_root(request: pytest.FixtureRequest) -> S3Endpoint:
    """Return an S3 prefix whose user may create buckets."""
    url = os.environ.get(S3_VARIABLE)
    if url:
        return S3Endpoint(url.rstrip("/"), *_named_endpoint())
    root: S3Endpoint = request.getfixturevalue("s3_server").endpoint
    return root


def _named_endpoint() -> tuple[str, str, str]:
    names = ("AWS_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    endpoint, access, secret = (os.environ.get(name, "") for name in names)
    return endpoint or os.environ.get("AWS_ENDPOINT_URL", ""), access, secret
