"""Savepoints on a real API server and a real store: taken, kept, restored by name, removed.

Drivers are scripted, and the checkpoint is made by hand; those of a real driver are in
`test_real_drivers`. What a savepoint holds is read by the library.
"""

import time
from pathlib import Path

import pytest

from infra.embedded import S3Endpoint
from sluicegate.checkpoint.restoring import restore
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import open_objects
from sluicegate_operator.resources.kinds import SAVEPOINT
from sluicegate_operator.resources.parsing import to_instant
from tests.operator.api import Api, eventually
from tests.operator.kubelet import Kubelet
from tests.operator.rest import Object
from tests.operator.running import RunningOperator, spec_of
from tests.operator.scenes import REPORTS, condition, job_when, phase, running
from tests.unit.checkpoint.made import checkpoint

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

HOUR_S = 3600.0


@pytest.fixture
def root(volume: str, namespace: str, bucket: S3Endpoint, tmp_path: Path) -> str:
    """Give the address of the test's volume, with a checkpoint of three epochs of the job clicks."""
    assert volume
    address = f"{bucket.url}/{namespace}"
    given = open_objects(checkpoint(tmp_path / "made", 3))
    target = open_objects(f"{address}/clicks/1")
    for name in given.names(""):
        target.put(name, given.chunks(name) or ())
    return address


def ready(api: Api, namespace: str, name: str, count: int = 1) -> list[Object]:
    """Wait until a Savepoint is ready; return what it has taken, the newest first."""

    def look() -> list[Object] | None:
        status = api.get(namespace, name, SAVEPOINT).get("status", {})
        assert status.get("phase") != "Failed", status
        taken: list[Object] = status.get("taken", [])
        return taken if status.get("phase") == "Ready" and len(taken) >= count else None

    return eventually(look, within_s=60.0)


def held(address: str) -> list[str]:
    """Return what is on the store below an address."""
    return list(open_objects(address).names(""))


@pytest.mark.usefixtures("operator")
def test_a_running_job_is_copied_beside_and_runs_on(
    api: Api, namespace: str, kubelet: Kubelet, root: str
) -> None:
    """Its checkpoint is not sealed, its driver is not stopped."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of())
    job_when(api, namespace, running(1))
    api.create(namespace, "copy", {"job": "clicks"}, SAVEPOINT)
    (taken,) = ready(api, namespace, "copy")
    assert taken["location"].startswith(f"{root}/savepoints/clicks/copy/")
    assert taken["epoch"] == 2
    assert StoredEpochLog(open_objects(f"{root}/clicks/1")).seal() is None
    assert running(1)(api.get(namespace, "clicks")["status"])


@pytest.mark.usefixtures("operator")
def test_a_suspended_job_is_ended_and_goes_on_under_another_name(
    api: Api, namespace: str, kubelet: Kubelet, root: str
) -> None:
    """With `stop` its checkpoint is sealed; the new job's driver is told where to begin."""
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
    (taken,) = ready(api, namespace, "move")
    assert StoredEpochLog(open_objects(f"{root}/clicks/1")).seal() is not None
    job_when(api, namespace, running(1), "moved")
    pod = api.get_pod(namespace, "moved-1-driver")
    assert pod is not None
    told = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
    assert told["SLUICEGATE_RESTORE_FROM"] == taken["location"]
    assert restore(taken["location"], str(told["SLUICEGATE_CHECKPOINT"])).moved


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
@pytest.mark.usefixtures("operator")
def test_the_data_of_a_deleted_savepoint_goes_if_it_says_so(
    api: Api, namespace: str, root: str, policy: str
) -> None:
    """With Retain it stays on the store, and can be restored."""
    api.create(namespace, "clicks", spec_of(suspend=True))
    api.create(namespace, "copy", {"job": "clicks", "reclaimPolicy": policy}, SAVEPOINT)
    (taken,) = ready(api, namespace, "copy")
    assert held(taken["location"])
    checkpointed = held(f"{root}/clicks/1")
    api.delete(namespace, "copy", SAVEPOINT)
    eventually(lambda: not api.exists(namespace, "copy", SAVEPOINT), within_s=60.0)
    assert bool(held(taken["location"])) == (policy == "Retain")
    assert held(f"{root}/clicks/1") == checkpointed


def test_a_schedule_takes_one_at_each_tick_and_keeps_the_newest(
    api: Api, namespace: str, kubeconfig: Path, root: str
) -> None:
    """What is over the history is removed from the store where the policy says so."""
    off = [0.0]
    spec = {
        "job": "clicks",
        "schedule": {"cron": "0 * * * *"},
        "history": 2,
        "reclaimPolicy": "Delete",
    }
    with RunningOperator(kubeconfig, namespace, clock=lambda: time.time() + off[0]) as operator:
        api.create(namespace, "clicks", spec_of(suspend=True))
        made = api.create(namespace, "hourly", spec, SAVEPOINT)
        first = (to_instant(made["metadata"]["creationTimestamp"]) // HOUR_S + 1) * HOUR_S
        job_when(api, namespace, phase("Suspended"))
        seen: list[str] = []
        for tick in range(3):
            off[0] = first + tick * HOUR_S + 5.0 - time.time()
            operator.look((namespace, "hourly"), SAVEPOINT)
            known = tuple(seen)
            newest = eventually(lambda known=known: _newest(api, namespace, known), within_s=60.0)  # type: ignore[misc]
            seen.append(newest)
        eventually(lambda: not held(seen[0]), within_s=60.0)
    taken = [one["location"] for one in ready(api, namespace, "hourly")]
    assert taken == [seen[2], seen[1]]
    assert held(seen[1])
    assert held(seen[2])
    assert held(f"{root}/clicks/1")


def _newest(api: Api, namespace: str, known: tuple[str, ...]) -> str:
    """Return the newest savepoint of the schedule if it is not known, else nothing."""
    found = api.get(namespace, "hourly", SAVEPOINT)
    taken = found.get("status", {}).get("taken", [])
    if not taken or taken[0]["location"] in known:
        return ""
    assert condition(found, "Accepted") == ("True", "SpecValid")
    return str(taken[0]["location"])
