"""Progress reports on the driver's own pod, over a real TLS connection."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.deployment.own_pod import OwnPod
from sluicegate.deployment.progress import ProgressReporter, VerdictReport
from tests.loopback_api import ApiServer, api_server

NEVER_S = 3600.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as running:
        yield running


def reporter_for(server: ApiServer, every_s: float) -> ProgressReporter:
    return ProgressReporter(OwnPod.read(server.environment()), every_s)


def test_the_first_epoch_is_sent_as_a_merge_patch_of_the_own_pod(server: ApiServer) -> None:
    reporter = reporter_for(server, NEVER_S)
    reporter.epoch(7)
    (request,) = server.wait(1)
    reporter.close()
    assert request.path == "/api/v1/namespaces/team/pods/j-1-driver"
    assert request.kind == "application/merge-patch+json"
    assert request.token == "first"
    assert request.body["metadata"]["uid"] == "u-1"
    assert request.progress["epoch"] == 7
    assert request.progress["at"].endswith("Z")


def test_a_report_tells_whether_the_driver_has_decided_an_epoch_itself(server: ApiServer) -> None:
    """Only that shows that its spec works; once it has, it stays so."""
    reporter = reporter_for(server, 0.01)
    reporter.before(3)
    reporter.idle()
    server.wait(1)
    for number, decided in enumerate((False, True, False), 4):
        reporter.epoch(number, decided=decided)
        server.wait(number - 2)
    reporter.close()
    assert [r.progress["decided"] for r in server.wait(4)] == [False, False, True, True]


def test_later_epochs_are_rate_limited_and_only_the_newest_is_sent(server: ApiServer) -> None:
    """The last one is sent at the end, without waiting for its turn."""
    reporter = reporter_for(server, NEVER_S)
    for epoch in range(5):
        reporter.epoch(epoch)
        server.wait(1)
    reporter.close()
    assert [request.progress["epoch"] for request in server.wait(2)] == [0, 4]


def test_the_last_epoch_is_sent_though_a_request_is_still_open_at_the_end(
    server: ApiServer,
) -> None:
    server.silent.set()
    reporter = reporter_for(server, NEVER_S)
    reporter.epoch(0)
    server.wait(1)
    reporter.epoch(1)
    answers = threading.Timer(0.2, server.silent.clear)
    answers.start()
    reporter.close()
    assert [request.progress["epoch"] for request in server.wait(2, 5.0)] == [0, 1]
    answers.join()


def test_the_first_epoch_is_sent_at_once_after_an_idle_report(server: ApiServer) -> None:
    reporter = reporter_for(server, NEVER_S)
    reporter.idle()
    server.wait(1)
    reporter.epoch(0)
    assert [request.progress["epoch"] for request in server.wait(2)] == [None, 0]
    reporter.close()


def test_a_driver_reports_at_the_interval_of_its_environment(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (server.environment() | {"SLUICEGATE_PROGRESS_INTERVAL": "3600"}).items():
        monkeypatch.setenv(name, value)
    reporter = ProgressReporter.of_pod()
    assert reporter._every_s == 3600.0
    reporter.close()


def test_a_failed_report_is_sent_again_before_the_next_one_is_due(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long interval must not let a failure make a driver look stuck."""
    monkeypatch.setattr("sluicegate.deployment.progress.RETRY_S", 0.1)
    server.status = 503
    reporter = reporter_for(server, NEVER_S)
    reporter.epoch(7)
    assert [request.progress["epoch"] for request in server.wait(2)] == [7, 7]
    reporter.close()


def test_an_idle_query_reports_the_epoch_from_before_its_start(server: ApiServer) -> None:
    reporter = reporter_for(server, NEVER_S)
    reporter.before(41)
    assert reporter.due()
    reporter.idle()
    (request,) = server.wait(1)
    assert request.progress["epoch"] == 41
    assert not reporter.due()
    reporter.close()


def test_a_report_has_what_bounds_the_job(server: ApiServer) -> None:
    reporter = reporter_for(server, NEVER_S)
    reporter.before(41, lambda: {"reason": "BoundByPlan", "message": "Bound by the plan."})
    reporter.epoch(42)
    (request,) = server.wait(1)
    reporter.close()
    assert request.progress["verdict"] == {"reason": "BoundByPlan", "message": "Bound by the plan."}


def test_a_verdict_that_fails_hides_no_progress(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Without reports the operator would restart the driver as stuck."""

    def fail() -> VerdictReport:
        raise LookupError("a report is malformed")

    reporter = reporter_for(server, 0.0)
    reporter.before(41, fail)
    for epoch in (42, 43):
        reporter.epoch(epoch)
        server.wait(epoch - 41)
    reporter.close()
    assert [request.progress["epoch"] for request in server.wait(2)] == [42, 43]
    assert caplog.text.count("without what bounds the job (LookupError)") == 1


def test_a_renewed_token_is_used(server: ApiServer) -> None:
    reporter = reporter_for(server, 0.0)
    reporter.epoch(0)
    server.wait(1)
    (server.account / "token").write_text("second")
    reporter.epoch(1)
    assert server.wait(2)[-1].token == "second"
    reporter.close()


def test_a_rejected_request_is_logged_once_and_retried(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.status = 403
    reporter = reporter_for(server, 0.01)
    reporter.epoch(3)
    server.wait(3)
    server.status = 200
    reporter.close()
    assert server.requests[-1].progress["epoch"] == 3
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "HTTP 403" in warnings[0].getMessage()


def test_nothing_is_sent_to_a_server_with_an_untrusted_certificate(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with api_server(tmp_path / "other") as other:
        shutil.copy(other.account / "ca.crt", server.account / "ca.crt")
        reporter = reporter_for(server, NEVER_S)
        reporter.epoch(0)
        reporter.close()
    assert server.requests == []
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


def test_a_silent_server_delays_neither_an_epoch_nor_the_end(server: ApiServer) -> None:
    server.silent.set()
    reporter = reporter_for(server, NEVER_S)
    began = time.monotonic()
    for epoch in range(1000):
        reporter.epoch(epoch)
    assert time.monotonic() - began < 2.0
    server.wait(1)
    began = time.monotonic()
    reporter.close()
    assert time.monotonic() - began < 4.0


def test_outside_of_a_pod_nothing_is_sent(server: ApiServer) -> None:
    environment = server.environment()
    del environment["KUBERNETES_SERVICE_HOST"]
    assert OwnPod.read(environment) is None
    reporter = ProgressReporter(None)
    reporter.epoch(1)
    reporter.idle()
    assert not reporter.due()
    reporter.close()
