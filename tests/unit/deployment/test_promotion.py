"""A standby that waits for its promotion, over a real TLS connection."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.deployment import promotion
from sluicegate.errors import SettingsInvalid
from tests.loopback_api import ApiServer, api_server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Run a server, and make this process a standby in its pod."""
    monkeypatch.setattr(promotion, "_RETRY_S", 0.01)
    with api_server(tmp_path) as running:
        for name, value in {**running.environment(), "SLUICEGATE_STANDBY": "true"}.items():
            monkeypatch.setenv(name, value)
        yield running


def event(*annotations: str, uid: str = "u-1") -> dict[str, Any]:
    metadata = {"uid": uid, "annotations": dict.fromkeys(annotations, "true")}
    return {"type": "MODIFIED", "object": {"metadata": metadata}}


PROMOTED = event("sluicegate.dev/standby-ready", "sluicegate.dev/promoted")
REPLACED = event("sluicegate.dev/promoted", uid="u-9")


def test_a_standby_reports_that_it_is_ready_and_waits_for_its_promotion(server: ApiServer) -> None:
    """Watches that end are begun again, and the pod of another uid is not its own."""
    server.watches = [[event()], [], [event(), REPLACED], [event(), PROMOTED], [PROMOTED]]
    assert promotion.is_waiting()
    promotion.await_promotion()
    assert not promotion.is_waiting()
    assert len(server.watches) == 1
    (report,) = server.requests
    assert report.body["metadata"] == {
        "uid": "u-1",
        "annotations": {"sluicegate.dev/standby-ready": "true"},
    }


def test_a_standby_waits_for_an_api_server_that_refuses_and_says_so_once(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 403
    waiting = threading.Thread(target=promotion.await_promotion, daemon=True)
    with caplog.at_level(logging.WARNING):
        waiting.start()
        server.wait(3)
    (record,) = caplog.records
    assert "watch and patch pods" in record.getMessage()
    server.watches = [[PROMOTED]]
    server.status = 200
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_standby_ends_at_sigterm(server: ApiServer) -> None:
    """The handler of a driver raises while the standby waits for the API server."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    def terminate() -> None:
        server.wait(1)
        os.kill(os.getpid(), signal.SIGTERM)

    server.silent.set()  # in a handshake the signal would leave a socket to the garbage collector
    before = signal.signal(signal.SIGTERM, end)
    thread = threading.Thread(target=terminate)
    thread.start()
    try:
        with pytest.raises(SystemExit):
            promotion.await_promotion()
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)
    assert promotion.is_waiting()


def test_a_standby_outside_of_a_pod_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_STANDBY", "true")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsInvalid, match="outside of a pod"):
        promotion.await_promotion()
