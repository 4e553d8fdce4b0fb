"""Scheduled batches on a real API server; the test moves the operator's clock from tick to tick."""

import time
from pathlib import Path

import pytest

from sluicegate_operator.kube.timestamps import to_instant
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import RUNS, ends
from tests.integration.operator.job_fixtures import Status, job_when, phase, running
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

HOUR_S = 3600.0
HOURLY = {"cron": "0 * * * *", "startingDeadlineSeconds": 600}


def test_batch_runs_by_schedule_and_skips_a_missed_run(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, volume: str
) -> None:
    """Two runs have a driver each, with the phase Waiting between them; the third is too late."""
    offset_s = [0.0]
    kubelet.plan("clicks", then=ends(0, after_s=0.2))
    with RunningOperator(
        kubeconfig, namespace, clock=lambda: time.time() + offset_s[0]
    ) as operator:
        spec = spec_of(volume, trigger="AvailableNow", schedule=HOURLY)
        created = api.create(namespace, "clicks", spec)
        first = (to_instant(created["metadata"]["creationTimestamp"]) // HOUR_S + 1) * HOUR_S
        job_when(api, namespace, lambda s: phase("Waiting")(s) and _volume_ready(s))
        assert api.pods(namespace) == []

        for run in (1, 2):
            offset_s[0] = first + (run - 1) * HOUR_S + 5.0 - time.time()
            operator.reconcile_now((namespace, "clicks"))
            job = job_when(api, namespace, _waiting_after(run))
            assert to_instant(job["status"]["lastScheduleTime"]) == first + (run - 1) * HOUR_S

        offset_s[0] = first + 2 * HOUR_S + 1000.0 - time.time()
        operator.reconcile_now((namespace, "clicks"))
        eventually(lambda: any(e["reason"] == "RunMissed" for e in api.events(namespace)))
        job = job_when(api, namespace, _waiting_after(2))
        assert to_instant(job["status"]["lastScheduleTime"]) == first + 2 * HOUR_S


def test_a_run_that_is_due_replaces_one_that_has_not_ended(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, volume: str
) -> None:
    """The old driver's end is seen before the new one's pod exists."""
    offset_s = [0.0]
    kubelet.plan("clicks", RUNS, then=ends(0, after_s=0.2))
    with RunningOperator(
        kubeconfig, namespace, clock=lambda: time.time() + offset_s[0]
    ) as operator:
        schedule = {**HOURLY, "concurrencyPolicy": "Replace"}
        spec = spec_of(volume, trigger="AvailableNow", schedule=schedule)
        created = api.create(namespace, "clicks", spec)
        first = (to_instant(created["metadata"]["creationTimestamp"]) // HOUR_S + 1) * HOUR_S
        job_when(api, namespace, lambda s: phase("Waiting")(s) and _volume_ready(s))
        for due, reached in ((first, running(1)), (first + HOUR_S, _waiting_after(2))):
            offset_s[0] = due + 5.0 - time.time()
            operator.reconcile_now((namespace, "clicks"))
            job_when(api, namespace, reached)
        status = api.get(namespace, "clicks")["status"]
        runs = [(run["result"], run["attempt"]) for run in status["runs"]]
        assert runs == [("Replaced", 1), ("Finished", 2)]
        assert status["restarts"] == 0


def _volume_ready(status: dict[str, object]) -> bool:
    conditions = status.get("conditions")
    assert isinstance(conditions, list)
    return any(c["type"] == "VolumeReady" and c["status"] == "True" for c in conditions)


def _waiting_after(attempt: int) -> Status:
    return lambda s: s.get("attempt") == attempt and phase("Waiting")(s)


def test_batch_that_has_expired_is_deleted(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, volume: str
) -> None:
    offset_s = [0.0]
    kubelet.plan("clicks", then=ends(0, after_s=0.2))
    with RunningOperator(
        kubeconfig, namespace, clock=lambda: time.time() + offset_s[0]
    ) as operator:
        spec = spec_of(volume, trigger="AvailableNow", ttlSecondsAfterFinished=int(HOUR_S))
        api.create(namespace, "clicks", spec)
        job_when(api, namespace, phase("Finished"))
        offset_s[0] = HOUR_S + 60.0
        operator.reconcile_now((namespace, "clicks"))
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)
        eventually(lambda: any(e["reason"] == "Expired" for e in api.events(namespace)))
