"""The event log of a driver on S3, and Spark's history server on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from infra.local_services import S3Endpoint
from infra.local_services.process import free_ports

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


def test_the_history_server_shows_a_driver_that_has_ended(
    bucket: S3Endpoint, tmp_path: Path
) -> None:
    environment = {**os.environ, **bucket.environment()}
    logs = f"{bucket.url}/spark-events"
    subprocess.run([sys.executable, "-c", DRIVER, logs], env=environment, check=True, timeout=120)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "sluicegate.cli", "history", logs, "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        applications = _applications(port, tmp_path / "log")
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert [each["name"] for each in applications] == ["logged"]


def _applications(port: int, log: Path) -> list[dict[str, Any]]:
    """Return the applications that the history server has read, once it has read one."""
    deadline = time.monotonic() + _SOON_S
    while time.monotonic() < deadline:
        try:
            url = f"http://127.0.0.1:{port}/api/v1/applications"
            with urllib.request.urlopen(url, timeout=5) as answer:
                found: list[dict[str, Any]] = json.load(answer)
        except OSError:
            found = []
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(log.read_text(encoding="utf-8"))
