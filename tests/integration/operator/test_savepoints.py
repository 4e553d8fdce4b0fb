"""Savepoints on a real API server and a real store: taken, retained, restored by name, deleted.

Drivers are scripted and the checkpoint is built by hand; `test_real_drivers` has real drivers. The
library reads the contents of the savepoints.
"""

import time
from pathlib import Path

import pytest

from infra.local_services import S3Endpoint
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, SAVEPOINT
from sluicegate_operator.kube.timestamps import to_instant
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.job_fixtures import REPORTS, condition, job_when, phase, running
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of
from tests.integration.operator.rest_client import Object
from tests.unit.savepoints.builders import checkpoint, restore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

HOUR_S = 3600.0


@pytest.fixture
def root(volume: str, namespace: str, bucket: S3Endpoint, tmp_path: Path) -> str:
    """Return the address of the test's volume, with a checkpoint of three epochs of the job clicks."""
    assert volume
    address = f"{bucket.url}/{namespace}"
    source = open_store(checkpoint(tmp_path / "source", 3))
    target = open_store(f"{address}/clicks/1")
    for name in source.names(""):
        target.put(name, source.stream(name) or ())
    return address


@pytest.fixture
def rights_to_all_buckets(
    api: Api, namespace: str, root: str, store_root: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give the volume and this process a key with rights to all buckets: a copy uses one key."""
    assert root
    for variable, value in store_root.environment().items():
        monkeypatch.setenv(variable, value)
    keys = {"accessKeyId": store_root.access_key, "secretAccessKey": store_root.secret_key}
    api.create_core(namespace, "secrets", {"metadata": {"name": "all"}, "stringData": keys})
    api.change(namespace, "store", {"spec": {"credentialsSecret": "all"}}, CHECKPOINT_VOLUME)


def wait_ready(api: Api, namespace: str, name: str, count: int = 1) -> list[Object]:
    """Wait until a Savepoint is ready; return what was taken, latest first."""

    def poll() -> list[Object] | None:
        status = api.get(namespace, name, SAVEPOINT).get("status", {})
        assert status.get("phase") != "Failed", status
        taken: list[Object] = status.get("taken", [])
        return taken if status.get("phase") == "Ready" and len(taken) >= count else None

    return eventually(poll, within_s=60.0)


def objects_below(address: str) -> list[str]:
    """Return the objects below an address."""
    return list(open_store(address).names(""))


@pytest.mark.usefixtures("operator")
def test_running_job_is_copied_and_continues(
    api: Api, namespace: str, kubelet: Kubelet, root: str
) -> None:
    """Its checkpoint is not sealed, and its driver is not stopped."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of())
    job_when(api, namespace, running(1))
    api.create(namespace, "copy", {"job": "clicks"}, SAVEPOINT)
    (taken,) = wait_ready(api, namespace, "copy")
    assert taken["location"].startswith(f"{root}/savepoints/clicks/copy/")
    assert taken["epoch"] == 2
    assert StoredEpochLog(open_store(f"{root}/clicks/1")).seal() is None
    assert running(1)(api.get(namespace, "clicks")["status"])


@pytest.mark.usefixtures("operator")
def test_suspended_job_is_moved_to_another_name(
    api: Api, namespace: str, kubelet: Kubelet, root: str
) -> None:
    """With `stop` its checkpoint is sealed, and the new job's driver receives the savepoint."""
    kubelet.plan("clicks", then=REPORTS)
    kubelet.plan("moved", then=REPORTS)
    api.create(namespace, "clicks", spec_of())
    job_when(api, namespace, running(1))
    api.change(namespace, "clicks", {"spec": {"suspend": True}})
    job_when(api, namespace, phase("Suspended"))
    moved = spec_of(checkpoint={"volume": "store", "restoreFrom": "move"})
    api.create(namespace, "moved", moved)
    job_when(api, namespace, lambda s: "SavepointNotReady" in str(s), "moved")
    assert api.get_pod(namespace, "moved-1-driver") is None

    api.create(namespace, "move", {"job": "clicks", "stop": True}, SAVEPOINT)
    (taken,) = wait_ready(api, namespace, "move")
    assert StoredEpochLog(open_store(f"{root}/clicks/1")).seal() is not None
    job_when(api, namespace, running(1), "moved")
    pod = api.get_pod(namespace, "moved-1-driver")
    assert pod is not None
    variables = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
    assert variables["SLUICEGATE_RESTORE_FROM"] == taken["location"]
    assert restore(taken["location"], str(variables["SLUICEGATE_CHECKPOINT"])).moved


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
@pytest.mark.usefixtures("operator")
def test_reclaim_policy_decides_about_the_data_of_a_deleted_savepoint(
    api: Api, namespace: str, root: str, policy: str
) -> None:
    """With Retain it stays on the store and can be restored."""
    api.create(namespace, "clicks", spec_of(suspend=True))
    api.create(namespace, "copy", {"job": "clicks", "reclaimPolicy": policy}, SAVEPOINT)
    (taken,) = wait_ready(api, namespace, "copy")
    assert objects_below(taken["location"])
    checkpointed = objects_below(f"{root}/clicks/1")
    api.delete(namespace, "copy", SAVEPOINT)
    eventually(lambda: not api.exists(namespace, "copy", SAVEPOINT), within_s=60.0)
    assert bool(objects_below(taken["location"])) == (policy == "Retain")
    assert objects_below(f"{root}/clicks/1") == checkpointed


@pytest.mark.usefixtures("rights_to_all_buckets")
def test_schedule_copies_a_checkpoint_to_another_bucket_and_retains_the_latest(
    api: Api, namespace: str, kubeconfig: Path, root: str, tmp_path: Path
) -> None:
    """The copy outlives the volume; with reclaimPolicy Delete, data beyond the history is deleted."""
    offset_s = [0.0]
    spec = {
        "job": "clicks",
        "volume": "backups",
        "schedule": {"cron": "0 * * * *"},
        "history": 2,
        "reclaimPolicy": "Delete",
    }
    with RunningOperator(
        kubeconfig, namespace, clock=lambda: time.time() + offset_s[0]
    ) as operator:
        volume = api.get(namespace, "store", CHECKPOINT_VOLUME)["spec"]
        elsewhere = volume | {"bucket": f"backups-{namespace}", "prefix": "copies"}
        api.create(namespace, "backups", elsewhere, CHECKPOINT_VOLUME)
        api.create(namespace, "clicks", spec_of(suspend=True))
        created = api.create(namespace, "hourly", spec, SAVEPOINT)
        first = (to_instant(created["metadata"]["creationTimestamp"]) // HOUR_S + 1) * HOUR_S
        job_when(api, namespace, phase("Suspended"))
        locations: list[str] = []
        for tick in range(3):
            offset_s[0] = first + tick * HOUR_S + 5.0 - time.time()
            operator.reconcile_now((namespace, "hourly"), SAVEPOINT)
            known = tuple(locations)
            newest = eventually(lambda known=known: _newest(api, namespace, known), within_s=60.0)  # type: ignore[misc]
            locations.append(newest)
        eventually(lambda: not objects_below(locations[0]), within_s=60.0)
    taken = [savepoint["location"] for savepoint in wait_ready(api, namespace, "hourly")]
    assert taken == [locations[2], locations[1]]
    assert objects_below(locations[1])
    assert objects_below(f"{root}/clicks/1")
    open_store(root).clear()  # the volume of the job is lost
    assert locations[2].startswith(f"s3://backups-{namespace}/copies/savepoints/clicks/hourly/")
    assert not restore(locations[2], str(tmp_path / "restored")).moved  # a branch


def _newest(api: Api, namespace: str, known: tuple[str, ...]) -> str:
    """Return the location of the schedule's latest savepoint; empty if it is known already."""
    savepoint = api.get(namespace, "hourly", SAVEPOINT)
    taken = savepoint.get("status", {}).get("taken", [])
    if not taken or taken[0]["location"] in known:
        return ""
    assert condition(savepoint, "Accepted") == ("True", "SpecValid")
    return str(taken[0]["location"])
