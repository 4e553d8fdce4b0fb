"""Operations on a real API server: health, metrics, permissions, shutdown, volumes."""

import http.client
import logging
import time
from pathlib import Path

import pytest

from infra.local_services import S3Endpoint
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB
from tests.integration.operator import rbac
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import ends
from tests.integration.operator.job_fixtures import (
    REPORTS,
    job_when,
    make_volume,
    phase,
    running,
    volume_ready,
)
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def http_get(operator: RunningOperator, path: str) -> tuple[int, str]:
    """Return the answer of the operator's HTTP port."""
    connection = http.client.HTTPConnection("127.0.0.1", operator.port, timeout=5.0)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_working_operator_is_alive_and_ready(operator: RunningOperator) -> None:
    eventually(lambda: http_get(operator, "/readyz")[0] == 200)
    assert http_get(operator, "/healthz") == (200, "ok\n")


def test_operator_whose_queue_is_stuck_is_not_alive(
    operator: RunningOperator, namespace: str
) -> None:
    """A reconciliation that never ends fails the liveness probe, and the answer has the reason."""
    assert operator.operator
    operator.operator.jobs.queue._busy[namespace, "hanging"] = time.monotonic() - 3600.0
    status, text = http_get(operator, "/healthz")
    assert status == 503
    assert "StreamingJob: a reconciliation has not ended" in text
    del operator.operator.jobs.queue._busy[namespace, "hanging"]


def test_metrics_cover_jobs_restarts_and_reconciliations(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    kubelet.plan("clicks", ends(1, "boom"), then=REPORTS)
    api.create(namespace, "clicks", spec_of(make_volume(api, namespace, bucket)))
    job_when(
        api, namespace, lambda s: running(2)(s) and s.get("checkpoint", {}).get("lastEpochTime")
    )
    job_labels = f'job="clicks",namespace="{namespace}"'
    expected = {
        f"sluicegate_job_restarts_total{{{job_labels}}} 1.0",
        f'sluicegate_job_phase{{{job_labels},phase="Running"}} 1.0',
        f"sluicegate_job_epoch_age_seconds{{{job_labels}}}",
        'sluicegate_reconcile_seconds_count{kind="StreamingJob"}',
        'sluicegate_queue_depth{kind="StreamingJob"}',
        "sluicegate_leader 1.0",
    }

    def missing() -> set[str]:
        metrics = http_get(operator, "/metrics")[1].replace(
            f'namespace="{namespace}",job="clicks"', job_labels
        )
        return {line for line in expected if line not in metrics}

    # a job's status is visible before the operator has the answer to its write and counts it
    eventually(lambda: not missing())
    assert missing() == set()
    assert operator.operator
    labels = {"namespace": namespace, "job": "clicks", "kind": "application"}
    value_of = operator.operator.metrics.registry.get_sample_value
    assert value_of("sluicegate_driver_failures_total", labels) == 1.0


def test_final_failure_is_counted(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, volume: str
) -> None:
    """Exit code 64 uses no budget; its kind is `final`."""
    kubelet.plan("clicks", then=ends(64, "SettingsInvalid: no such topic"))
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Failed"))
    assert operator.operator
    labels = {"namespace": namespace, "job": "clicks", "kind": "final"}
    value_of = operator.operator.metrics.registry.get_sample_value
    # the status is visible before the failure is counted
    eventually(lambda: value_of("sluicegate_driver_failures_total", labels))
    assert value_of("sluicegate_driver_failures_total", labels) == 1.0


def test_only_the_leader_exports_jobs(api: Api, namespace: str, kubeconfig: Path) -> None:
    """A sum over all replicas is therefore correct."""
    api.create(namespace, "clicks", spec_of("nowhere"))
    with (
        RunningOperator(kubeconfig, namespace) as first,
        RunningOperator(kubeconfig, namespace) as second,
    ):
        job_when(api, namespace, lambda s: s.get("conditions"))
        eventually(
            lambda: any(
                'job="clicks"' in http_get(operator, "/metrics")[1] for operator in (first, second)
            )
        )
        pages = [http_get(operator, "/metrics")[1] for operator in (first, second)]
    assert sorted('sluicegate_jobs{phase="Pending"} 1.0' in page for page in pages) == [False, True]
    assert sorted('job="clicks"' in page for page in pages) == [False, True]


def test_operator_without_permissions_is_alive_but_not_ready(api: Api, namespace: str) -> None:
    """The answer names the missing permission."""
    with RunningOperator(api.server.kubeconfig("nobody"), namespace) as operator:
        eventually(lambda: "streamingjobs" in http_get(operator, "/readyz")[1])
        assert http_get(operator, "/readyz")[0] == 503
        assert http_get(operator, "/healthz")[0] == 200


def test_missing_crds_are_logged_once_and_block_reconciling(
    own_api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the Savepoints in its cache, every savepoint on a store would look unreferenced."""
    own_api.install_crds((STREAMING_JOB, CHECKPOINT_VOLUME))
    rbac.grant_everywhere(own_api)
    rbac.grant_lease(own_api, "default")
    own_api.create("default", "clicks", spec_of("nowhere"))
    with RunningOperator(own_api.server.kubeconfig(rbac.OPERATOR), "default") as operator:
        eventually(lambda: "does not serve savepoints" in http_get(operator, "/readyz")[1])
        assert "operators/crds" in http_get(operator, "/readyz")[1]
        assert http_get(operator, "/healthz")[0] == 200
        eventually(lambda: "sluicegate_leader 1.0" in http_get(operator, "/metrics")[1])
        time.sleep(3.0)  # the operator lists again, and could reconcile the job
        assert "status" not in own_api.get("default", "clicks")
        own_api.install_crds((SAVEPOINT,))
        eventually(lambda: http_get(operator, "/readyz") == (200, "ok\n"))
        job_when(own_api, "default", lambda s: s.get("conditions"))
    messages = [record.getMessage() for record in caplog.records]
    assert len([message for message in messages if "does not serve savepoints" in message]) == 1


def test_deleted_job_leaves_no_metrics(api: Api, namespace: str, operator: RunningOperator) -> None:
    api.create(namespace, "clicks", spec_of("nowhere"))
    job_when(api, namespace, lambda s: s.get("conditions"))
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"))
    eventually(lambda: 'job="clicks"' not in http_get(operator, "/metrics")[1])


def test_no_secret_is_logged(
    api: Api,
    namespace: str,
    operator: RunningOperator,
    bucket: S3Endpoint,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither the store's keys nor the API server's token appear, even at level DEBUG."""
    caplog.set_level(logging.DEBUG)
    make_volume(api, namespace, bucket)

    def logged() -> str:
        return "\n".join(str(record.getMessage()) for record in list(caplog.records))

    # the operator writes the status first and its log line after it
    eventually(lambda: "Ready" in logged(), within_s=60.0)
    assert volume_ready(api, namespace)
    assert bucket.secret_key not in logged()
    assert operator.token not in logged()


def test_volume_is_measured(
    api: Api, namespace: str, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    """The status has the size and number of objects: at least those of the preflight."""
    assert operator.operator
    make_volume(api, namespace, bucket)

    def measured() -> bool:
        status = api.get(namespace, "store", CHECKPOINT_VOLUME).get("status", {})
        return bool(status.get("measuredTime")) and status.get("objects", 0) > 0

    eventually(measured, within_s=60.0)


def test_volume_waits_for_its_secret(
    api: Api, namespace: str, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    assert operator.operator
    spec = {
        "endpoint": bucket.endpoint,
        "bucket": bucket.bucket,
        "prefix": bucket.prefix(namespace),
        "credentialsSecret": "keys",
    }
    api.create(namespace, "store", spec, CHECKPOINT_VOLUME)
    eventually(lambda: "no Secret keys" in str(api.get(namespace, "store", CHECKPOINT_VOLUME)))
    keys = {"accessKeyId": bucket.access_key, "secretAccessKey": bucket.secret_key}
    api.create_core(namespace, "secrets", {"metadata": {"name": "keys"}, "stringData": keys})
    api.change(namespace, "store", {"metadata": {"labels": {"again": "now"}}}, CHECKPOINT_VOLUME)
    eventually(lambda: volume_ready(api, namespace), within_s=60.0)


@pytest.mark.usefixtures("short_delete_delay")
def test_deleted_volume_waits_for_its_job_and_deletes_its_data(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    """With reclaimPolicy Delete; its condition names the job that it waits for."""
    assert operator.operator
    kubelet.plan("clicks", then=REPORTS)
    make_volume(api, namespace, bucket)
    api.change(namespace, "store", {"spec": {"reclaimPolicy": "Delete"}}, CHECKPOINT_VOLUME)
    api.create(namespace, "clicks", spec_of("store"))
    job_when(api, namespace, running(1))
    api.delete(namespace, "store", CHECKPOINT_VOLUME)
    eventually(lambda: "StreamingJob clicks" in str(api.get(namespace, "store", CHECKPOINT_VOLUME)))
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"), within_s=60.0)
    eventually(lambda: not api.exists(namespace, "store", CHECKPOINT_VOLUME), within_s=90.0)
