"""Reports of a driver's executors on its own pod, over a real TLS connection."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.deployment.executors import ExecutorsReporter
from sluicegate.deployment.own_pod import OwnPod
from tests.loopback_api import ApiServer, Request, api_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as running:
        yield running


class Spark:
    """What Spark answers, one number after another, and then the last one again and again."""

    def __init__(self, *numbers: int | None) -> None:
        self.numbers = [*numbers]

    def count(self) -> int:
        number = self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]
        if number is None:
            raise LookupError("the context is stopped")
        return number


def reporter_for(server: ApiServer, spark: Spark) -> ExecutorsReporter:
    pod = OwnPod.read(server.environment())
    assert pod is not None
    return ExecutorsReporter(pod, 2, spark.count, every_s=0.01)


def executors(request: Request) -> dict[str, int]:
    text = request.body["metadata"]["annotations"]["sluicegate.dev/executors"]
    found: dict[str, int] = json.loads(text)
    return found


def test_a_number_is_sent_when_it_changes_and_not_again(server: ApiServer) -> None:
    spark = Spark(0, 0, 0, 2, 2, 2, 1)
    reporter = reporter_for(server, spark)
    server.wait(3)
    reporter.close()
    sent = [executors(request) for request in server.requests]
    assert sent == [{"running": number, "wanted": 2} for number in (0, 2, 1)]


def test_a_number_that_spark_does_not_say_is_asked_for_again(server: ApiServer) -> None:
    reporter = reporter_for(server, Spark(None, None, 2))
    server.wait(1)
    reporter.close()
    assert [executors(request)["running"] for request in server.requests] == [2]


def test_a_rejected_request_is_logged_once_and_retried(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 403
    reporter = reporter_for(server, Spark(2))
    server.wait(3)
    server.status = 200
    server.wait(4)
    reporter.close()
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "cannot report the number of executors" in warnings[0].getMessage()
