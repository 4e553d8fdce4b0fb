"""The event log of a driver on S3, and Spark's history server on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from infra.local_services import S3Endpoint
from infra.local_services.process import free_ports
from tests.integration.operator.api import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_SOON_S = 60.0

DRIVER = """
import sys
from sluicegate.spark.session import session
log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": sys.argv[1]}
spark = session("logged", settings=log)
spark.range(10).count()
spark.stop()
"""


def test_the_history_server_shows_a_driver_that_has_ended(bucket: S3Endpoint) -> None:
    environment = {**os.environ, **bucket.environment()}
    logs = f"{bucket.url}/spark-events"
    subprocess.run([sys.executable, "-c", DRIVER, logs], env=environment, check=True, timeout=120)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "sluicegate.cli", "history", logs, "--port", str(port)]
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        applications = eventually(lambda: _applications(port), within_s=_SOON_S)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert [each["name"] for each in applications] == ["logged"]


def _applications(port: int) -> list[dict[str, Any]]:
    """Return the applications that the history server has read so far."""
    try:
        url = f"http://127.0.0.1:{port}/api/v1/applications"
        with urllib.request.urlopen(url, timeout=5) as answer:
            if answer.headers.get_content_type() != "application/json":
                return []  # the server adds its pages first, and they answer this path meanwhile
            found: list[dict[str, Any]] = json.load(answer)
    except OSError:  # it has not started yet
        return []
    return found
