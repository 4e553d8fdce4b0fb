"""Real drivers under the operator: processes that run the real job, on real Kafka, MariaDB and S3.

The stand-in for the kubelet starts the pod's command on this machine; all else is as on a cluster.
"""

from pathlib import Path

import pytest

from infra.embedded import S3Endpoint, Services
from sluicegate.cli.options import as_arguments
from sluicegate.protocol.errors import SluicegateError
from sluicegate.protocol.failpoints import VARIABLE
from sluicegate_jobs.ip_count import IpCountSettings
from sluicegate_jobs.ip_count_verify import verify
from sluicegate_operator.resources.kinds import SAVEPOINT
from tests.faults.harness import LINES, Scene, access_lines, environment, feed, scene
from tests.operator.api import Api, eventually
from tests.operator.process_kubelet import ProcessKubelet
from tests.operator.rest import Object
from tests.operator.rights import grant_driver
from tests.operator.running import RunningOperator
from tests.operator.scenes import Status, job_when, make_volume, running

pytestmark = [
    pytest.mark.integration,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

PATIENCE_S = 240.0


def ip_count(settings: IpCountSettings, failpoint: str) -> Object:
    """Return the spec of a StreamingJob that runs ip_count, whose driver dies at a failpoint."""
    container = {"name": "driver", "env": [{"name": VARIABLE, "value": failpoint}]}
    return {
        "image": "jobs:1",
        "mainModule": "sluicegate.cli",
        "arguments": ["run", "ip_count", "--once", *as_arguments(settings)],
        "checkpoint": {"volume": "store"},
        "executor": {"instances": 0},
        "driver": {"template": {"spec": {"containers": [container]}}},
        "epochs": {"interval": "1 second", "minPauseMs": 0, "timeoutS": 180},
        "upgradeMode": "savepoint",
        "restart": {"strategy": "fixed-delay", "attempts": 3, "delayS": 0.5},
    }


def after(attempt: int, epoch: int) -> Status:
    """Return whether an attempt runs, and has made an epoch."""
    return lambda status: running(attempt)(status) and (status.get("lastEpoch") or 0) >= epoch


def test_ip_count_is_exact_through_a_killed_driver_a_savepoint_an_upgrade_and_deletion(
    api: Api,
    namespace: str,
    kubeconfig: Path,
    services: Services,
    bucket: S3Endpoint,
    tmp_path: Path,
) -> None:
    """Each is seen with real epochs; in the end every line is counted once."""
    grant_driver(api, namespace)
    make_volume(api, namespace, bucket)
    died = tmp_path / "died"
    kubelet = ProcessKubelet(
        api.server,
        tmp_path / "pods",
        nodes=[f"{namespace}-1"],
        namespace=namespace,
        environment=environment(),
    )
    with (
        scene(services, tmp_path) as played,
        kubelet,
        RunningOperator(kubeconfig, namespace),
    ):
        spec = ip_count(played.settings, f"after-decide@2=kill-group~{died}")
        api.create(namespace, "clicks", spec)
        found = job_when(api, namespace, after(2, 3), within_s=PATIENCE_S)
        assert died.exists()
        assert found["status"]["restarts"] == 1

        api.create(namespace, "by-hand", {"job": "clicks"}, SAVEPOINT)
        taken = eventually(lambda: _taken(api, namespace, "by-hand"), within_s=60.0)
        assert taken["location"].startswith(f"{bucket.url}/{namespace}/savepoints/clicks/by-hand/")

        api.change(namespace, "clicks", {"spec": {"driver": {"memory": "900m"}}})
        found = job_when(api, namespace, after(3, 1), within_s=PATIENCE_S)
        assert found["status"]["checkpointNumber"] == 2
        assert found["status"]["restoredFrom"] == "clicks-upgrade-2"

        feed(services.kafka.bootstrap, played.settings.source, access_lines(seed=8))
        moved = played.but(checkpoint=f"{bucket.url}/{namespace}/clicks/2")
        eventually(lambda: _all_read(moved), within_s=PATIENCE_S)
        api.delete(namespace, "clicks")
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=PATIENCE_S)
        moved.check_exact(2 * LINES)


def _all_read(played: Scene) -> bool:
    try:
        return verify(played.settings).checked["source lines not read yet"] == 0
    except SluicegateError:
        return False  # the job goes on while it is looked at


def _taken(api: Api, namespace: str, name: str) -> Object | None:
    status = api.get(namespace, name, SAVEPOINT).get("status", {})
    assert status.get("phase") != "Failed", status
    found: Object | None = status["taken"][0] if status.get("phase") == "Ready" else None
    return found
