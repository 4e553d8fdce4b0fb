"""A standby on a real API server: its pod, its takeover, and a real driver that goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from infra.local_services import S3Endpoint, Services
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import Behavior
from tests.integration.operator.job_fixtures import (
    REPORTS,
    Status,
    job_when,
    make_volume,
    running,
)
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of
from tests.integration.operator.rbac import grant_driver
from tests.integration.operator.real_jobs import ip_count_spec, kubelet_of
from tests.integration.operator.rest_client import Object
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_LINES,
    LINES,
    UNPARSED,
    access_lines,
    count_unparsed,
    feed,
    new_scenario,
)
from tests.robustness.traffic.late_lines import possibly_late

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

STANDBY = "sluicegate.dev/standby"
PROMOTED = "sluicegate.dev/promoted"
TAKEOVER_S = 60.0
"""Generous, because the machine may be busy; the figures are in docs/guides/restarts.md."""


def standby(state: str, attempt: int) -> Status:
    """Return a predicate: the job's standby has a state and a number."""
    return lambda status: (
        status.get("standby", {}).get("state") == state
        and status["standby"].get("attempt") == attempt
    )


def pod_of(api: Api, namespace: str, attempt: int) -> Object:
    """Return an attempt's pod."""
    pod = api.get_pod(namespace, f"clicks-{attempt}-driver")
    assert pod is not None
    return pod


@pytest.mark.usefixtures("operator")
def test_a_standby_becomes_the_driver_when_the_first_has_ended(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """Its pod is promoted, no pod is created in its place, and a new standby follows."""
    kubelet.plan("clicks", Behavior(progress_every_s=0.2, runs_s=6, exit_code=1), then=REPORTS)
    spec = spec_of(volume, standby=1, executor={"instances": 0})
    api.create(namespace, "clicks", spec)
    job_when(api, namespace, standby("Starting", 2))
    waiting = pod_of(api, namespace, 2)
    assert waiting["metadata"]["labels"][STANDBY] == "true"
    assert PROMOTED not in waiting["metadata"]["annotations"]
    job = job_when(api, namespace, running(2))
    assert job["status"]["restarts"] == 1
    job_when(api, namespace, standby("Starting", 3))
    promoted = pod_of(api, namespace, 2)
    assert promoted["metadata"]["uid"] == waiting["metadata"]["uid"]
    assert STANDBY not in promoted["metadata"]["labels"]
    assert PROMOTED in promoted["metadata"]["annotations"]
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)


@pytest.mark.faults
@pytest.mark.slow
def test_a_real_standby_goes_on_and_every_line_is_counted_once(
    api: Api,
    namespace: str,
    kubeconfig: Path,
    services: Services,
    bucket: S3Endpoint,
    tmp_path: Path,
) -> None:
    """The first driver is killed with -9 while its standby waits."""
    grant_driver(api, namespace)
    make_volume(api, namespace, bucket)
    kubelet = kubelet_of(api, namespace, tmp_path)
    scenario = new_scenario(services, tmp_path)
    spec = ip_count_spec(scenario.settings, standby=1)
    with kubelet, RunningOperator(kubeconfig, namespace):
        api.create(namespace, "clicks", spec)
        job_when(api, namespace, standby("Ready", 2), within_s=240.0)
        on_store = scenario.with_settings(checkpoint=f"{bucket.url}/{namespace}/clicks/1")
        eventually(on_store.all_read, within_s=120.0)
        first = pod_of(api, namespace, 1)
        more = access_lines(seed=8)
        feed(services.kafka.bootstrap, scenario.settings.source, more)
        killed = time.monotonic()
        kubelet.kill(first)
        job_when(api, namespace, running(2), within_s=TAKEOVER_S)
        eventually(on_store.all_read, within_s=TAKEOVER_S)
        assert time.monotonic() - killed < TAKEOVER_S
        log = kubelet.log_of(pod_of(api, namespace, 2))
        assert "the standby is not warm" not in log
        api.delete(namespace, "clicks")
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=240.0)
        late = possibly_late(access_lines() + more, epoch_lines=EPOCH_LINES)
        on_store.check_exact(2 * LINES, unparsed=UNPARSED + count_unparsed(more), late=late)
