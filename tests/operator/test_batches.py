"""Batches by schedule on a real API server; the operator's clock is moved from tick to tick."""

import time
from pathlib import Path

import pytest

from sluicegate_operator.resources.parsing import to_instant
from tests.operator.api import Api, eventually
from tests.operator.behaviours import ends
from tests.operator.kubelet import Kubelet
from tests.operator.running import RunningOperator, spec_of
from tests.operator.scenes import Status, job_when, phase

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

HOUR_S = 3600.0
HOURLY = {"cron": "0 * * * *", "startingDeadlineS": 600}


def test_a_batch_runs_by_schedule_and_a_missed_run_is_left_out(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, volume: str
) -> None:
    """Two runs, each by its own driver, with Waiting between; the third comes too late to be made."""
    off = [0.0]
    kubelet.plan("clicks", then=ends(0, after_s=0.2))
    with RunningOperator(kubeconfig, namespace, clock=lambda: time.time() + off[0]) as operator:
        spec = spec_of(volume, trigger="availableNow", schedule=HOURLY)
        made = api.create(namespace, "clicks", spec)
        first = (to_instant(made["metadata"]["creationTimestamp"]) // HOUR_S + 1) * HOUR_S
        job_when(api, namespace, lambda s: phase("Waiting")(s) and _volume_ready(s))
        assert api.pods(namespace) == []

        for run in (1, 2):
            off[0] = first + (run - 1) * HOUR_S + 5.0 - time.time()
            operator.look((namespace, "clicks"))
            found = job_when(api, namespace, _done(run))
            assert to_instant(found["status"]["lastScheduleTime"]) == first + (run - 1) * HOUR_S

        off[0] = first + 2 * HOUR_S + 1000.0 - time.time()
        operator.look((namespace, "clicks"))
        eventually(lambda: any(e["reason"] == "RunMissed" for e in api.events(namespace)))
        found = job_when(api, namespace, _done(2))
        assert to_instant(found["status"]["lastScheduleTime"]) == first + 2 * HOUR_S


def _volume_ready(status: dict[str, object]) -> bool:
    conditions = status.get("conditions")
    assert isinstance(conditions, list)
    return any(c["type"] == "VolumeReady" and c["status"] == "True" for c in conditions)


def _done(attempt: int) -> Status:
    return lambda s: s.get("attempt") == attempt and phase("Waiting")(s)
