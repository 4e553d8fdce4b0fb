"""Requests of the operator to a real API server while jobs run and nothing changes."""

import time
from pathlib import Path
from typing import Any, Final

import pytest

from sluicegate_operator.reconcile.streaming_job import status
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import Behavior
from tests.integration.operator.job_fixtures import job_when
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of

JOBS: Final = tuple(f"clicks-{number}" for number in range(10))
MINUTE_S: Final = 6.0
"""A minute of this test: the interval of reports, and that of the operator's writes, are a tenth."""
WINDOW_S: Final = 2 * MINUTE_S - 2.0
"""At most two reports of each driver, which are a minute apart, fall into it, also if one is late."""
SHARED: Final = ("leases", "checkpointvolumes", "secrets")


@pytest.fixture
def short_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "PROGRESS_S", status.PROGRESS_S * MINUTE_S / 60.0)


@pytest.mark.usefixtures("short_minutes")
def test_a_running_job_costs_the_operator_at_most_one_request_a_minute(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """Requests of all verbs count, except what all jobs share: watches, the volume and the Lease."""
    for name in JOBS:
        kubelet.plan(name, then=Behavior(progress_every_s=MINUTE_S))
        api.create(namespace, name, spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace) as operator:
        for name in JOBS:
            job_when(api, namespace, _has_epoch, name)
        written = _requests(operator)
        eventually(lambda: _requests(operator) >= written + len(JOBS))  # all have settled
        before = _requests(operator)
        time.sleep(WINDOW_S)
        sent = _requests(operator) - before
    assert len(JOBS) / 2 <= sent <= 2 * len(JOBS)


def _requests(operator: RunningOperator) -> float:
    """Return how many requests the operator has exported as sent, without those that jobs share."""
    assert operator.operator
    (metric,) = (
        one
        for one in operator.operator.metrics.registry.collect()
        if one.name == "sluicegate_api_requests"
    )
    return sum(
        one.value
        for one in metric.samples
        if one.labels["verb"] != "WATCH" and one.labels["resource"] not in SHARED
    )


def _has_epoch(job_status: dict[str, Any]) -> bool:
    return "lastEpoch" in job_status.get("checkpoint", {})
