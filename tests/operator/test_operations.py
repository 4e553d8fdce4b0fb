"""The operator as platform engineers see it: health, metrics, rights, shutdown. On a real API server."""

import http.client
import logging
import time
from pathlib import Path

import pytest

from infra.embedded import S3Endpoint
from sluicegate_operator.resources.kinds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB
from tests.operator import rights
from tests.operator.api import Api, eventually
from tests.operator.behaviours import ends
from tests.operator.kubelet import Kubelet
from tests.operator.running import RunningOperator, spec_of
from tests.operator.scenes import REPORTS, job_when, make_volume, phase, running, volume_ready

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def asked(operator: RunningOperator, path: str) -> tuple[int, str]:
    """Return what the operator's port answers."""
    connection = http.client.HTTPConnection("127.0.0.1", operator.port, timeout=5.0)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


counted = eventually
"""A status is seen before the operator has the answer to its own write, and counts."""


def test_an_operator_that_works_is_alive_and_ready(operator: RunningOperator) -> None:
    eventually(lambda: asked(operator, "/readyz")[0] == 200)
    assert asked(operator, "/healthz") == (200, "ok\n")


def test_an_operator_whose_reconciling_stands_still_is_not_alive(
    operator: RunningOperator, namespace: str
) -> None:
    """A job that is looked at without end makes the probe fail, with the reason."""
    assert operator.operator
    operator.operator.jobs.queue._busy[namespace, "hanging"] = time.monotonic() - 3600.0
    status, text = asked(operator, "/healthz")
    assert status == 503
    assert "StreamingJob: a resource has waited" in text
    del operator.operator.jobs.queue._busy[namespace, "hanging"]


def test_metrics_tell_of_jobs_restarts_and_looks(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    kubelet.plan("clicks", ends(1, "boom"), then=REPORTS)
    api.create(namespace, "clicks", spec_of(make_volume(api, namespace, bucket)))
    job_when(api, namespace, lambda s: running(2)(s) and s.get("lastEpochTime"))
    mine = f'job="clicks",namespace="{namespace}"'
    awaited = {
        f"sluicegate_job_restarts_total{{{mine}}} 1.0",
        f'sluicegate_job_phase{{{mine},phase="Running"}} 1.0',
        f"sluicegate_job_epoch_age_seconds{{{mine}}}",
        'sluicegate_reconcile_seconds_count{kind="StreamingJob"}',
        'sluicegate_queue_depth{kind="StreamingJob"}',
        "sluicegate_leader 1.0",
    }

    def missing() -> set[str]:
        found = asked(operator, "/metrics")[1].replace(
            f'namespace="{namespace}",job="clicks"', mine
        )
        return {line for line in awaited if line not in found}

    counted(lambda: not missing())
    assert missing() == set()
    assert operator.operator
    labels = {"namespace": namespace, "job": "clicks", "kind": "application"}
    count = operator.operator.metrics.registry.get_sample_value
    assert count("sluicegate_driver_failures_total", labels) == 1.0


def test_a_failure_that_no_start_can_help_is_counted(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, volume: str
) -> None:
    """Exit code 64 spends no budget; its kind is `final`."""
    kubelet.plan("clicks", then=ends(64, "SettingsInvalid: no such topic"))
    api.create(namespace, "clicks", spec_of(volume))
    job_when(api, namespace, phase("Failed"))
    assert operator.operator
    labels = {"namespace": namespace, "job": "clicks", "kind": "final"}
    count = operator.operator.metrics.registry.get_sample_value
    counted(lambda: count("sluicegate_driver_failures_total", labels))
    assert count("sluicegate_driver_failures_total", labels) == 1.0


def test_of_two_operators_only_the_one_that_acts_shows_jobs(
    api: Api, namespace: str, kubeconfig: Path
) -> None:
    """So that a sum over all replicas is right."""
    api.create(namespace, "clicks", spec_of("nowhere"))
    with (
        RunningOperator(kubeconfig, namespace) as first,
        RunningOperator(kubeconfig, namespace) as second,
    ):
        job_when(api, namespace, lambda s: s.get("conditions"))
        counted(lambda: any('job="clicks"' in asked(one, "/metrics")[1] for one in (first, second)))
        pages = [asked(one, "/metrics")[1] for one in (first, second)]
    assert sorted('sluicegate_jobs{phase="Pending"} 1.0' in page for page in pages) == [False, True]
    assert sorted('job="clicks"' in page for page in pages) == [False, True]


def test_an_operator_that_may_not_read_jobs_is_alive_and_not_ready(
    api: Api, namespace: str
) -> None:
    """The answer says which right is missing."""
    with RunningOperator(api.server.kubeconfig("nobody"), namespace) as operator:
        eventually(lambda: "streamingjobs" in asked(operator, "/readyz")[1])
        assert asked(operator, "/readyz")[0] == 503
        assert asked(operator, "/healthz")[0] == 200


def test_an_operator_without_all_definitions_says_so_once_and_does_nothing_until_they_are_there(
    own_api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """To one that sees no Savepoints, every savepoint on a store would be one that nobody names."""
    own_api.define((STREAMING_JOB, CHECKPOINT_VOLUME))
    rights.grant_everywhere(own_api)
    rights.grant_lease(own_api, "default")
    own_api.create("default", "clicks", spec_of("nowhere"))
    with RunningOperator(own_api.server.kubeconfig(rights.OPERATOR), "default") as operator:
        eventually(lambda: "knows no savepoints" in asked(operator, "/readyz")[1])
        assert "operators/crds" in asked(operator, "/readyz")[1]
        assert asked(operator, "/healthz")[0] == 200
        eventually(lambda: "sluicegate_leader 1.0" in asked(operator, "/metrics")[1])
        time.sleep(3.0)  # it asks again, and has looked at the job
        assert "status" not in own_api.get("default", "clicks")
        own_api.define((SAVEPOINT,))
        eventually(lambda: asked(operator, "/readyz") == (200, "ok\n"))
        job_when(own_api, "default", lambda s: s.get("conditions"))
    said = [record.getMessage() for record in caplog.records]
    assert len([one for one in said if "knows no savepoints" in one]) == 1


def test_a_job_that_is_gone_leaves_no_metrics(
    api: Api, namespace: str, operator: RunningOperator
) -> None:
    api.create(namespace, "clicks", spec_of("nowhere"))
    job_when(api, namespace, lambda s: s.get("conditions"))
    api.delete(namespace, "clicks")
    eventually(lambda: not api.exists(namespace, "clicks"))
    eventually(lambda: 'job="clicks"' not in asked(operator, "/metrics")[1])


def test_no_secret_is_ever_logged(
    api: Api,
    namespace: str,
    operator: RunningOperator,
    bucket: S3Endpoint,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither the store's keys nor the API server's token, at the most talkative level."""
    caplog.set_level(logging.DEBUG)
    make_volume(api, namespace, bucket)
    eventually(lambda: volume_ready(api, namespace), within_s=60.0)
    logged = "\n".join(str(record.getMessage()) for record in caplog.records)
    assert "Ready" in logged
    assert bucket.secret_key not in logged
    assert operator.token not in logged


def test_a_volume_is_measured(
    api: Api, namespace: str, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    """Size and number of objects are in the status: at least the preflight's."""
    assert operator.operator
    make_volume(api, namespace, bucket)

    def measured() -> bool:
        status = api.get(namespace, "store", CHECKPOINT_VOLUME).get("status", {})
        return bool(status.get("measuredTime")) and status.get("objects", 0) > 0

    eventually(measured, within_s=60.0)


def test_a_volume_without_its_secret_says_so_and_goes_on_when_it_is_there(
    api: Api, namespace: str, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    assert operator.operator
    spec = {
        "endpoint": bucket.endpoint,
        "bucket": bucket.url.removeprefix("s3://").partition("/")[0],
        "prefix": namespace,
        "credentialsSecret": "keys",
    }
    api.create(namespace, "store", spec, CHECKPOINT_VOLUME)
    eventually(lambda: "no Secret keys" in str(api.get(namespace, "store", CHECKPOINT_VOLUME)))
    keys = {"accessKeyId": bucket.access_key, "secretAccessKey": bucket.secret_key}
    api.make(namespace, "secrets", {"metadata": {"name": "keys"}, "stringData": keys})
    api.change(namespace, "store", {"metadata": {"labels": {"again": "now"}}}, CHECKPOINT_VOLUME)
    eventually(lambda: volume_ready(api, namespace), within_s=60.0)


def test_a_deleted_volume_in_use_waits_and_then_empties_its_prefix(
    api: Api, namespace: str, kubelet: Kubelet, operator: RunningOperator, bucket: S3Endpoint
) -> None:
    """With reclaimPolicy Delete; it says which job it waits for."""
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
