"""StreamingJobs on a real API server and a real store, with scripted kubelets.

tests/unit/operator tests the reconcilers; these tests show that their decisions reach the cluster.
"""

import pytest

from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import Behavior, ends
from tests.integration.operator.job_fixtures import REPORTS, job_when, phase, running
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.mark.usefixtures("operator")
def test_job_runs_once_its_volume_is_ready(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """Phase, attempt, epoch and conditions are set, and the driver gets its checkpoint."""
    kubelet.plan("clicks", REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job = job_when(
        api,
        namespace,
        lambda s: s.get("checkpoint", {}).get("lastEpochTime") and phase("Running")(s),
    )
    status = job["status"]
    assert status["attempt"] == 1
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions == {
        "Accepted": "True",
        "Ready": "True",
        "VolumeReady": "True",
        "Failed": "False",
    }
    pod = api.get_pod(namespace, "clicks-1-driver")
    assert pod is not None
    variables = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
    assert variables["SLUICEGATE_CHECKPOINT"].endswith(f"/{namespace}/clicks/1")


@pytest.mark.usefixtures("operator")
def test_job_without_its_volume_waits(api: Api, namespace: str) -> None:
    api.create(namespace, "clicks", spec_of("nowhere"))
    job = job_when(api, namespace, lambda s: s.get("conditions"))
    ready = next(c for c in job["status"]["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "VolumeNotReady"
    assert "no CheckpointVolume nowhere" in ready["message"]
    assert api.pods(namespace) == []


@pytest.mark.usefixtures("operator")
def test_failed_driver_is_replaced(api: Api, namespace: str, kubelet: Kubelet, volume: str) -> None:
    """The status has the error and the restart."""
    message = '{"kind": "StageFailed", "what": "a column is missing", "data": "", "do": ""}'
    kubelet.plan("clicks", ends(1, message), then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job = job_when(api, namespace, running(2))
    assert job["status"]["restarts"] == 1
    assert "StageFailed: a column is missing" in job["status"]["lastError"]


@pytest.mark.usefixtures("operator")
def test_job_fails_when_its_restarts_are_used_up(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """The status and an Event have the reason; restartNonce resets the budget."""
    kubelet.plan("clicks", then=ends(1, "boom"))
    restart = {"strategy": "FixedDelay", "attempts": 1, "delaySeconds": 0.1}
    api.create(namespace, "clicks", spec_of(volume, restart=restart))
    job = job_when(api, namespace, phase("Failed"))
    assert "boom" in job["status"]["lastError"]
    message = "all 1 restarts are used up"
    eventually(lambda: any(message in event["message"] for event in api.events(namespace)))
    kubelet.plan("clicks", then=REPORTS)
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    job_when(api, namespace, phase("Running"))


@pytest.mark.usefixtures("operator")
def test_change_that_no_driver_sees_restarts_nothing(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    changed = api.change(namespace, "clicks", {"spec": {"savepointTimeoutSeconds": 99}})
    generation = changed["metadata"]["generation"]
    job = job_when(api, namespace, lambda s: s.get("observedGeneration") == generation)
    assert job["status"]["attempt"] == 1


@pytest.mark.usefixtures("operator")
def test_new_image_is_used_by_the_next_driver(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """The old driver is stopped first, and has ended when the new one starts."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
    job_when(api, namespace, running(2))
    pod = api.get_pod(namespace, "clicks-2-driver")
    assert pod is not None
    assert pod["spec"]["containers"][0]["image"] == "jobs:2"


@pytest.mark.usefixtures("operator")
def test_suspended_job_has_no_driver_until_it_is_resumed(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    api.change(namespace, "clicks", {"spec": {"suspend": True}})
    job_when(api, namespace, phase("Suspended"))
    api.change(namespace, "clicks", {"spec": {"suspend": False}})
    job_when(api, namespace, running(2))


@pytest.mark.usefixtures("operator")
def test_deleted_job_is_released(api: Api, namespace: str, kubelet: Kubelet, volume: str) -> None:
    """A driver that exits with 0 leaves nothing to apply."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)


def test_job_in_its_desired_state_causes_no_writes(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, volume: str
) -> None:
    """Reconciling a job that is in its desired state writes nothing."""
    kubelet.plan("clicks", then=Behavior())
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))

    def writes_nothing() -> bool:
        write_count = len(operator.writes)
        operator.reconcile_now((namespace, "clicks"))
        return len(operator.writes) == write_count

    eventually(writes_nothing)  # the reconciliation that wrote the phase may have more to write
    version = api.get(namespace, "clicks")["metadata"]["resourceVersion"]
    assert writes_nothing()
    assert api.get(namespace, "clicks")["metadata"]["resourceVersion"] == version
