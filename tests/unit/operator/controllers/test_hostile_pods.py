"""What a pod says of itself may be anything: its author must not be able to stop the operator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_status import VerdictStatus
from sluicegate_operator.controllers.decode import DriverPod, driver_pod_of
from sluicegate_operator.reconcile.observed import Executors


def decode(message: str = "", **meta: Any) -> DriverPod:
    """Return a failed driver's pod with this termination message."""
    ended = {"exitCode": 1, "message": message}
    return driver_pod_of(
        {
            "metadata": {
                "namespace": "n",
                "name": "p",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **meta,
            },
            "status": {"containerStatuses": [{"state": {"terminated": ended}}]},
        }
    )


@pytest.mark.parametrize(
    "report",
    [
        "[" * 2000,
        '{"at": "2026-01-01T00:00:00Z", "epoch": "x"}',
        '{"at": "2026-01-01T00:00:00Z", "epoch": true}',
        '{"at": "2026-01-01T00:00:00Z", "epoch": -1}',
        '{"at": "0001-01-01T00:00:00+23:59", "epoch": 1}',
        '{"at": "9999-12-31T23:59:59-23:59", "epoch": 1}',
        '{"at": 5}',
        "[]",
    ],
)
def test_a_malformed_progress_report_counts_as_none(report: str) -> None:
    assert decode(annotations={"sluicegate.dev/progress": report}).pod.progress is None


@pytest.mark.parametrize(
    "verdict",
    ['"Waits"', "[]", '{"reason": "Waits"}', '{"reason": "is slow", "message": "x"}', "null"],
)
def test_a_malformed_verdict_hides_no_progress(verdict: str) -> None:
    report = f'{{"at": "2026-01-01T00:00:00Z", "epoch": 7, "verdict": {verdict}}}'
    progress = decode(annotations={"sluicegate.dev/progress": report}).pod.progress
    assert progress is not None
    assert (progress.epoch, progress.verdict) == (7, None)


@pytest.mark.parametrize(("given", "decided"), [("", True), (', "decided": false', False)])
def test_a_driver_that_does_not_say_counts_as_one_that_decides(given: str, decided: bool) -> None:  # noqa: FBT001
    """Drivers of older releases do not."""
    report = f'{{"at": "2026-01-01T00:00:00Z", "epoch": 7{given}}}'
    progress = decode(annotations={"sluicegate.dev/progress": report}).pod.progress
    assert progress is not None
    assert progress.decided is decided


def test_a_long_verdict_is_shortened() -> None:
    verdict = json.dumps({"reason": "Waits", "message": "x" * 9000})
    report = f'{{"at": "2026-01-01T00:00:00Z", "epoch": 7, "verdict": {verdict}}}'
    progress = decode(annotations={"sluicegate.dev/progress": report}).pod.progress
    assert progress is not None
    assert progress.verdict == VerdictStatus(reason="Waits", message="x" * 500)


@pytest.mark.parametrize(
    "report",
    [
        "[" * 2000,
        "{",
        "[]",
        '{"running": 1}',
        '{"running": true, "wanted": 1}',
        '{"running": -1, "wanted": 1}',
        '{"running": 1, "wanted": 99999999999999999999}',
    ],
)
def test_a_malformed_report_of_executors_counts_as_none(report: str) -> None:
    assert decode(annotations={"sluicegate.dev/executors": report}).pod.executors is None


def test_executors_are_read_from_their_annotation() -> None:
    annotations = {"sluicegate.dev/executors": '{"running": 1, "wanted": 2}'}
    assert decode(annotations=annotations).pod.executors == Executors(1, 2)


def test_a_deep_termination_message_is_quoted() -> None:
    assert decode("[" * 4000).pod.message == "[" * 1000


@pytest.mark.parametrize("attempt", ["²", "9" * 5000])
def test_an_attempt_that_is_no_number_counts_as_none(attempt: str) -> None:
    assert decode(labels={"sluicegate.dev/attempt": attempt}).pod.attempt == 0
