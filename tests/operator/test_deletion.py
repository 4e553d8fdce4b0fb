"""How jobs end on a real API server, when what they need to end is missing, broken or leaving too."""

import time
from pathlib import Path
from typing import Final

import pytest

from infra.embedded import S3Endpoint
from sluicegate_operator.resources.kinds import CHECKPOINT_VOLUME, STREAMING_JOB
from tests.operator import rights
from tests.operator.api import Api, eventually
from tests.operator.behaviours import Behaviour, ends
from tests.operator.kubelet import Kubelet
from tests.operator.rest import Object
from tests.operator.running import RunningOperator, spec_of
from tests.operator.scenes import REPORTS, condition, drivers_alive, job_when, make_volume, running

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

OWES: Final = Behaviour(progress_every_s=0.5, stop_exit_code=1)
"""A driver that does not end its epoch when it is asked to stop: it is to be finished."""

_DEFINITION: Final = (
    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{STREAMING_JOB.plural}.sluicegate.dev"
)


def finish_failed(status: Object) -> bool:
    """Return whether a status says that what is decided could not be applied."""
    return any(c["reason"] == "FinishFailed" for c in status.get("conditions", ()))


def test_finishing_that_failed_for_good_is_tried_again(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, volume: str
) -> None:
    """A minute later another driver applies the epoch, and the job goes."""
    off = [0.0]
    kubelet.plan("clicks", OWES, ends(66, "DecidedForAnotherJob: a sink"), then=ends(0))
    with RunningOperator(kubeconfig, namespace, clock=lambda: time.time() + off[0]) as operator:
        api.create(namespace, "clicks", spec_of(volume))
        job_when(api, namespace, running(1))
        api.delete(namespace, "clicks")
        found = job_when(api, namespace, finish_failed)
        assert found["status"]["attempt"] == 2
        assert found["status"]["finishFailures"] == 1
        off[0] = 61.0
        operator.look((namespace, "clicks"))
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)
    made = [path for method, path in operator.writes if method == "POST" and path.endswith("/pods")]
    assert len(made) == 3


@pytest.mark.usefixtures("operator")
def test_another_restart_nonce_tries_it_at_once(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """Also on a job that is deleted already."""
    kubelet.plan("clicks", OWES, ends(66, "DecidedForAnotherJob: a sink"), then=ends(0))
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, running(1))
    api.delete(namespace, "clicks")
    job_when(api, namespace, finish_failed)
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_volume_that_is_deleted_with_its_job_stays_until_the_job_has_finished(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, volume: str, policy: str
) -> None:
    """A driver applies what is decided on it; then both go."""
    api.change(namespace, volume, {"spec": {"reclaimPolicy": policy}}, CHECKPOINT_VOLUME)
    kubelet.plan("clicks", OWES, then=ends(0, after_s=0.5))
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, running(1))
    eventually(lambda: api.get(namespace, volume, CHECKPOINT_VOLUME)["metadata"].get("finalizers"))
    api.delete(namespace, volume, CHECKPOINT_VOLUME)
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)
    eventually(lambda: not api.exists(namespace, volume, CHECKPOINT_VOLUME), within_s=90.0)
    made = [path for method, path in operator.writes if method == "POST" and path.endswith("/pods")]
    assert len(made) == 2


def test_a_job_whose_spec_the_operator_cannot_read_is_let_go(
    own_api: Api, bucket: S3Endpoint
) -> None:
    """It has a field of a later version. Its driver is left alone until the job is deleted."""
    own_api.define()
    rights.grant_everywhere(own_api)
    namespace = own_api.namespace()
    rights.grant_lease(own_api, namespace)
    definition = own_api.ask("GET", _DEFINITION)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    own_api.ask("PUT", _DEFINITION, definition)
    kubeconfig = own_api.server.kubeconfig(rights.OPERATOR)
    with (
        Kubelet(own_api.server, nodes=[f"{namespace}-1"], namespace=namespace) as kubelet,
        RunningOperator(kubeconfig, namespace),
    ):
        kubelet.plan("clicks", then=REPORTS)
        own_api.create(namespace, "clicks", spec_of(make_volume(own_api, namespace, bucket)))
        job_when(own_api, namespace, running(1))

        def later() -> Object | None:
            """Set the field, once the server serves it."""
            found = own_api.change(namespace, "clicks", {"spec": {"later": "yes"}})
            return found if found["spec"].get("later") else None

        eventually(later)
        found = job_when(own_api, namespace, lambda s: "SpecInvalid" in str(s))
        assert condition(found, "Accepted") == ("False", "SpecInvalid")
        assert drivers_alive(own_api, namespace) == ["clicks-1-driver"]
        own_api.delete(namespace, "clicks")
        eventually(lambda: not own_api.exists(namespace, "clicks"), within_s=60.0)
    assert drivers_alive(own_api, namespace) == []
