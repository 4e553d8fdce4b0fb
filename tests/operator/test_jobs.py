"""StreamingJobs on a real API server and a real store; kubelets are scripted.

Claims of reconciling itself are in tests/unit/operator; here is seen that they reach the cluster.
"""

import pytest

from tests.operator.api import Api, eventually
from tests.operator.behaviours import Behaviour, ends
from tests.operator.kubelet import Kubelet
from tests.operator.running import RunningOperator, spec_of
from tests.operator.scenes import REPORTS, job_when, phase, running

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.mark.usefixtures("operator")
def test_a_job_runs_when_its_volume_is_ready(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """Phase, attempt, epoch and conditions say so, and the driver has what it needs."""
    kubelet.plan("clicks", REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    found = job_when(api, namespace, lambda s: s.get("lastEpochTime") and phase("Running")(s))
    status = found["status"]
    assert status["attempt"] == 1
    ready = {c["type"]: c["status"] for c in status["conditions"]}
    assert ready == {"Accepted": "True", "Ready": "True", "VolumeReady": "True", "Failed": "False"}
    pod = api.get_pod(namespace, "clicks-1-driver")
    assert pod is not None
    told = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
    assert told["SLUICEGATE_CHECKPOINT"].endswith(f"/{namespace}/clicks/1")


@pytest.mark.usefixtures("operator")
def test_a_job_without_its_volume_waits_and_says_so(api: Api, namespace: str) -> None:
    api.create(namespace, "clicks", spec_of("nowhere"))
    found = job_when(api, namespace, lambda s: s.get("conditions"))
    ready = next(c for c in found["status"]["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "VolumeNotReady"
    assert "no CheckpointVolume nowhere" in ready["message"]
    assert api.pods(namespace) == []


@pytest.mark.usefixtures("operator")
def test_a_driver_that_fails_is_replaced(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """The error and the restart are in the status."""
    said = '{"kind": "StageFailed", "what": "a column is missing", "data": "", "do": ""}'
    kubelet.plan("clicks", ends(1, said), then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    found = job_when(api, namespace, running(2))
    assert found["status"]["restarts"] == 1
    assert "StageFailed: a column is missing" in found["status"]["lastError"]


@pytest.mark.usefixtures("operator")
def test_a_job_whose_restarts_are_spent_has_failed_for_good(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """Status and an Event say why; restartNonce begins anew."""
    kubelet.plan("clicks", then=ends(1, "boom"))
    restart = {"strategy": "fixed-delay", "attempts": 1, "delayS": 0.1}
    api.create(namespace, "clicks", spec_of(volume, restart=restart))
    found = job_when(api, namespace, phase("Failed"))
    assert "boom" in found["status"]["lastError"]
    said = "all 1 restarts are spent"
    eventually(lambda: any(said in event["message"] for event in api.events(namespace)))
    kubelet.plan("clicks", then=REPORTS)
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    job_when(api, namespace, phase("Running"))


@pytest.mark.usefixtures("operator")
def test_a_change_that_needs_no_restart_does_none(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    changed = api.change(namespace, "clicks", {"spec": {"savepointTimeoutS": 99}})
    generation = changed["metadata"]["generation"]
    found = job_when(api, namespace, lambda s: s.get("observedGeneration") == generation)
    assert found["status"]["attempt"] == 1


@pytest.mark.usefixtures("operator")
def test_a_new_image_is_taken_up_by_the_next_driver(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """The old driver is asked to stop first, and has ended when the new one starts."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
    job_when(api, namespace, running(2))
    pod = api.get_pod(namespace, "clicks-2-driver")
    assert pod is not None
    assert pod["spec"]["containers"][0]["image"] == "jobs:2"


@pytest.mark.usefixtures("operator")
def test_a_suspended_job_has_no_driver_and_goes_on_when_resumed(
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
def test_a_deleted_job_goes_with_its_pods(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """A driver that ended well leaves nothing to finish."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)


def test_at_rest_nothing_is_written(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, volume: str
) -> None:
    """Looking at a job that is as it should be writes nothing."""
    kubelet.plan("clicks", then=Behaviour())
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Running"))
    before = api.get(namespace, "clicks")["metadata"]["resourceVersion"]
    written = len(operator.writes)
    operator.look((namespace, "clicks"))
    assert len(operator.writes) == written
    assert api.get(namespace, "clicks")["metadata"]["resourceVersion"] == before
