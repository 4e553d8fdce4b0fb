"""A driver's progress on its own pod, over a real connection with TLS."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.tracing.progress import OwnPod, Progress
from tests.loopback_api import ApiServer, api_server

NEVER_S = 3600.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as made:
        yield made


def progress(server: ApiServer, every_s: float) -> Progress:
    return Progress(OwnPod.read(server.environment()), every_s)


def test_the_first_epoch_is_a_merge_patch_of_the_own_pod(server: ApiServer) -> None:
    told = progress(server, NEVER_S)
    told.epoch(7)
    (request,) = server.wait(1)
    told.close()
    assert request.path == "/api/v1/namespaces/team/pods/j-1-driver"
    assert request.kind == "application/merge-patch+json"
    assert request.token == "first"
    assert request.body["metadata"]["uid"] == "u-1"
    assert request.progress["epoch"] == 7
    assert request.progress["at"].endswith("Z")


def test_later_epochs_wait_and_only_the_newest_is_sent(server: ApiServer) -> None:
    """The last at the end, whenever that is."""
    told = progress(server, NEVER_S)
    for epoch in range(5):
        told.epoch(epoch)
        server.wait(1)
    told.close()
    assert [request.progress["epoch"] for request in server.wait(2)] == [0, 4]


def test_the_last_epoch_is_sent_when_the_end_comes_before_an_answer(server: ApiServer) -> None:
    server.silent.set()
    told = progress(server, NEVER_S)
    told.epoch(0)
    server.wait(1)
    told.epoch(1)
    answers = threading.Timer(0.2, server.silent.clear)
    answers.start()
    told.close()
    assert [request.progress["epoch"] for request in server.wait(2, 5.0)] == [0, 1]
    answers.join()


def test_the_first_epoch_does_not_wait_for_an_idle_triggers_turn(server: ApiServer) -> None:
    told = progress(server, NEVER_S)
    told.idle()
    server.wait(1)
    told.epoch(0)
    assert [request.progress["epoch"] for request in server.wait(2)] == [None, 0]
    told.close()


def test_an_idle_stream_says_what_was_in_before(server: ApiServer) -> None:
    told = progress(server, NEVER_S)
    told.before(41)
    assert told.due()
    told.idle()
    (request,) = server.wait(1)
    assert request.progress["epoch"] == 41
    assert not told.due()
    told.close()


def test_a_new_token_is_used(server: ApiServer) -> None:
    told = progress(server, 0.0)
    told.epoch(0)
    server.wait(1)
    (server.account / "token").write_text("second")
    told.epoch(1)
    assert server.wait(2)[-1].token == "second"
    told.close()


def test_a_refusal_is_logged_once_and_tried_again(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.status = 403
    told = progress(server, 0.01)
    told.epoch(3)
    server.wait(3)
    server.status = 200
    told.close()
    assert server.requests[-1].progress["epoch"] == 3
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "HTTP 403" in warnings[0].getMessage()


def test_a_server_of_another_authority_is_told_nothing(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with api_server(tmp_path / "other") as other:
        shutil.copy(other.account / "ca.crt", server.account / "ca.crt")
        told = progress(server, NEVER_S)
        told.epoch(0)
        told.close()
    assert server.requests == []
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


def test_a_silent_server_delays_no_epoch_and_no_end(server: ApiServer) -> None:
    server.silent.set()
    told = progress(server, NEVER_S)
    began = time.monotonic()
    for epoch in range(1000):
        told.epoch(epoch)
    assert time.monotonic() - began < 2.0
    server.wait(1)
    began = time.monotonic()
    told.close()
    assert time.monotonic() - began < 4.0


def test_outside_of_a_pod_nothing_is_sent(server: ApiServer) -> None:
    environment = server.environment()
    del environment["KUBERNETES_SERVICE_HOST"]
    assert OwnPod.read(environment) is None
    told = Progress(None)
    told.epoch(1)
    told.idle()
    assert not told.due()
    told.close()
