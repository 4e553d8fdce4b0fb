"""Deletion of jobs on a real API server while something they need is missing, broken or being deleted."""

import time
from pathlib import Path
from typing import Final

import pytest

from infra.local_services import S3Endpoint
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, STREAMING_JOB
from tests.integration.operator import rbac
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import Behavior, ends
from tests.integration.operator.job_fixtures import (
    REPORTS,
    condition,
    drivers_alive,
    job_when,
    make_volume,
    running,
)
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of
from tests.integration.operator.rest_client import Object

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

FAILS_TO_STOP: Final = Behavior(progress_every_s=0.5, stop_exit_code=1)
"""A driver that does not finish its epoch when it is stopped, so an apply-only driver is needed."""

_CRD: Final = (
    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{STREAMING_JOB.plural}.sluicegate.dev"
)


def apply_failed(status: Object) -> bool:
    """Return whether a status has the condition that decided epochs could not be applied."""
    return any(c["reason"] == "ApplyFailed" for c in status.get("conditions", ()))


def test_failed_apply_is_retried(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, volume: str
) -> None:
    """A minute later another driver applies the epoch, and the job is released."""
    offset_s = [0.0]
    kubelet.plan("clicks", FAILS_TO_STOP, ends(66, "RecordOfAnotherJob: a sink"), then=ends(0))
    with RunningOperator(
        kubeconfig, namespace, clock=lambda: time.time() + offset_s[0]
    ) as operator:
        api.create(namespace, "clicks", spec_of(volume))
        job_when(api, namespace, running(1))
        api.delete(namespace, "clicks")
        job = job_when(api, namespace, apply_failed)
        assert job["status"]["attempt"] == 2
        assert job["status"]["applyFailures"] == 1
        offset_s[0] = 61.0
        operator.reconcile_now((namespace, "clicks"))
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)
    pod_creations = [
        path for method, path in operator.writes if method == "POST" and path.endswith("/pods")
    ]
    assert len(pod_creations) == 3


@pytest.mark.usefixtures("operator")
def test_changed_restart_nonce_retries_a_failed_apply_at_once(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """This works on a deleted job too."""
    kubelet.plan("clicks", FAILS_TO_STOP, ends(66, "RecordOfAnotherJob: a sink"), then=ends(0))
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, running(1))
    api.delete(namespace, "clicks")
    job_when(api, namespace, apply_failed)
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)


@pytest.mark.usefixtures("short_delete_delay")
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_deleted_volume_stays_until_its_job_is_released(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, volume: str, policy: str
) -> None:
    """A driver applies the decided epochs; then both are released."""
    api.change(namespace, volume, {"spec": {"reclaimPolicy": policy}}, CHECKPOINT_VOLUME)
    kubelet.plan("clicks", FAILS_TO_STOP, then=ends(0, after_s=0.5))
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, running(1))
    eventually(lambda: api.get(namespace, volume, CHECKPOINT_VOLUME)["metadata"].get("finalizers"))
    api.delete(namespace, volume, CHECKPOINT_VOLUME)
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)
    eventually(lambda: not api.exists(namespace, volume, CHECKPOINT_VOLUME), within_s=90.0)
    pod_creations = [
        path for method, path in operator.writes if method == "POST" and path.endswith("/pods")
    ]
    assert len(pod_creations) == 2


def test_deleted_job_with_an_invalid_spec_is_released(own_api: Api, bucket: S3Endpoint) -> None:
    """It has a value of a later version. The accepted spec runs until the job is deleted."""
    own_api.install_crds()
    rbac.grant_everywhere(own_api)
    namespace = own_api.namespace()
    rbac.grant_lease(own_api, namespace)
    crd = own_api.request("GET", _CRD)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = schema["properties"]["spec"]["properties"]
    fields["later"] = {"type": "string"}
    fields["imagePullPolicy"]["enum"].append("Later")
    own_api.request("PUT", _CRD, crd)
    kubeconfig = own_api.server.kubeconfig(rbac.OPERATOR)
    with (
        Kubelet(own_api.server, nodes=[f"{namespace}-1"], namespace=namespace) as kubelet,
        RunningOperator(kubeconfig, namespace),
    ):
        kubelet.plan("clicks", then=REPORTS)
        own_api.create(namespace, "clicks", spec_of(make_volume(own_api, namespace, bucket)))
        job_when(own_api, namespace, running(1))

        def set_later_field() -> Object | None:
            """Set the field, once the server serves it."""
            job = own_api.change(namespace, "clicks", {"spec": {"later": "yes"}})
            return job if job["spec"].get("later") else None

        eventually(set_later_field)
        job = job_when(own_api, namespace, lambda s: "UnknownFieldsIgnored" in str(s))
        assert condition(job, "Accepted") == ("True", "UnknownFieldsIgnored")
        own_api.change(namespace, "clicks", {"spec": {"imagePullPolicy": "Later"}})
        job = job_when(own_api, namespace, lambda s: "SpecInvalid" in str(s))
        assert condition(job, "Accepted") == ("False", "SpecInvalid")
        assert drivers_alive(own_api, namespace) == ["clicks-1-driver"]
        own_api.delete(namespace, "clicks")
        eventually(lambda: not own_api.exists(namespace, "clicks"), within_s=60.0)
    assert drivers_alive(own_api, namespace) == []
