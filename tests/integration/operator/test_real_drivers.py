"""Real drivers under the operator: processes that run the real job with real Kafka, MariaDB and S3.

The simulated kubelet runs the pod's command on this machine; everything else is as in a cluster.
"""

from pathlib import Path

import pytest

from infra.local_services import S3Endpoint, Services
from sluicegate.console.operations import works_in
from sluicegate.failpoints import VARIABLE
from sluicegate.storage.driver_start import DRIVER_CPU, DRIVER_MEMORY, FOLDER, JOB, read_start
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.ip_count.job import IpCountSettings
from sluicegate_operator.api.crds import SAVEPOINT
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.job_fixtures import Status, job_when, make_volume, running
from tests.integration.operator.operator_thread import RunningOperator
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

pytestmark = [
    pytest.mark.integration,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

TIMEOUT_S = 240.0


def spec_with_failpoints(settings: IpCountSettings, failpoints: str) -> Object:
    """Return the spec of a StreamingJob that runs ip_count, and whose drivers have these failpoints."""
    container = {"name": "driver", "env": [{"name": VARIABLE, "value": failpoints}]}
    return ip_count_spec(
        settings,
        driver={"template": {"spec": {"containers": [container]}}},
        upgradeMode="Savepoint",
        restart={"strategy": "FixedDelay", "attempts": 3, "delaySeconds": 0.5},
        terminationGracePeriodSeconds=5,
    )


def running_with_epoch(attempt: int, epoch: int) -> Status:
    """Return a predicate: an attempt is running and has committed an epoch."""
    return lambda status: (
        running(attempt)(status) and status.get("checkpoint", {}).get("lastEpoch", 0) >= epoch
    )


def test_ip_count_is_exact_after_a_crash_a_savepoint_an_upgrade_and_a_deletion(
    api: Api,
    namespace: str,
    kubeconfig: Path,
    services: Services,
    bucket: S3Endpoint,
    tmp_path: Path,
) -> None:
    """At the end every line is counted once.

    The deletion finds a driver that has decided an epoch and does not go on. It is killed when its grace
    period ends, and one that only applies must follow.
    """
    grant_driver(api, namespace)
    make_volume(api, namespace, bucket)
    crashed, hung = tmp_path / "crashed", tmp_path / "hung"
    hung.touch()  # without this file the next epoch hangs
    kubelet = kubelet_of(api, namespace, tmp_path)
    scenario = new_scenario(services, tmp_path)
    more = access_lines(seed=8)

    with kubelet, RunningOperator(kubeconfig, namespace):
        failpoints = f"after-decide@2=kill-group~{crashed};after-decide=hang~{hung}"
        api.create(namespace, "clicks", spec_with_failpoints(scenario.settings, failpoints))
        job = job_when(api, namespace, running_with_epoch(2, 3), within_s=TIMEOUT_S)
        assert crashed.exists()
        assert job["status"]["restarts"] == 1

        api.create(namespace, "by-hand", {"job": "clicks"}, SAVEPOINT)
        taken = eventually(lambda: _taken(api, namespace, "by-hand"), within_s=60.0)
        assert taken["location"].startswith(f"{bucket.url}/{namespace}/savepoints/clicks/by-hand/")

        api.change(namespace, "clicks", {"spec": {"driver": {"memory": "900m"}}})
        job = job_when(api, namespace, running_with_epoch(3, 1), within_s=TIMEOUT_S)
        assert job["status"]["checkpoint"]["number"] == 2
        name = f"clicks-upgrade-{job['metadata']['uid'][:8]}-2"
        assert job["status"]["checkpoint"]["restoredFrom"] == name

        feed(services.kafka.bootstrap, scenario.settings.source, more[:-1])
        moved = scenario.with_settings(checkpoint=f"{bucket.url}/{namespace}/clicks/2")
        eventually(moved.all_read, within_s=TIMEOUT_S)
        _check_start(moved.settings.checkpoint, api.get(namespace, "clicks"))

        hung.unlink()
        feed(services.kafka.bootstrap, scenario.settings.source, more[-1:])
        eventually(hung.exists, within_s=TIMEOUT_S)
        api.delete(namespace, "clicks")
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=TIMEOUT_S)
        late = possibly_late(access_lines() + more, epoch_lines=EPOCH_LINES)
        moved.check_exact(2 * LINES, unparsed=UNPARSED + count_unparsed(more), late=late)


def _check_start(checkpoint: str, job: Object) -> None:
    """Check that the console finds the job of a checkpoint, and what its pod requests."""
    store = open_store(checkpoint)
    start = read_start(store, max(store.entries(FOLDER)))
    assert start
    assert start.settings[JOB] == f"{job['metadata']['namespace']}/clicks"
    assert start.settings[DRIVER_CPU] == "1000m"
    assert start.settings[DRIVER_MEMORY] == "1284Mi", "900m and Spark's least overhead"
    assert works_in(job, checkpoint)


def _taken(api: Api, namespace: str, name: str) -> Object | None:
    status = api.get(namespace, name, SAVEPOINT).get("status", {})
    assert status.get("phase") != "Failed", status
    taken: Object | None = status["taken"][0] if status.get("phase") == "Ready" else None
    return taken
