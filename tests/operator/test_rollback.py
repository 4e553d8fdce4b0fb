"""Rollback on a real API server: a new spec that makes no epoch is given up for the last good one."""

import pytest

from tests.operator.api import Api, eventually
from tests.operator.behaviours import NO_IMAGE, RUNS, Behaviour, ends
from tests.operator.kubelet import Kubelet
from tests.operator.rest import Object
from tests.operator.running import spec_of
from tests.operator.scenes import REPORTS, condition, drivers_alive, job_when, running

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("operator"),
]

WATCHED = {"enabled": True, "deadlineS": 3}


def image_of(api: Api, namespace: str, attempt: int) -> str:
    """Return the image of an attempt's driver."""
    pod = api.get_pod(namespace, f"clicks-{attempt}-driver")
    assert pod is not None
    return str(pod["spec"]["containers"][0]["image"])


def rolled_back(api: Api, namespace: str) -> Object:
    """Have a good spec replaced by a bad one; return the job when the good one runs again."""
    spec = spec_of("store", rollback=WATCHED, start={"imageTimeoutS": 1, "imageAttempts": 0})
    api.create(namespace, "clicks", spec)
    job_when(api, namespace, lambda s: running(1)(s) and s.get("good"))
    api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
    return job_when(api, namespace, running(3))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (RUNS, "NoEpoch"),
        (ends(64, "SettingsInvalid: no such topic"), "SettingsRefused"),
        (NO_IMAGE, "ImageNotPulled"),
    ],
    ids=["no epoch in time", "failed for good", "no image"],
)
def test_a_spec_that_makes_no_epoch_is_given_up_for_the_last_good_one(
    api: Api, namespace: str, kubelet: Kubelet, volume: str, bad: Behaviour, reason: str
) -> None:
    """The condition RolledBack and a Warning say why; the checkpoint is the good one's."""
    assert volume
    kubelet.plan("clicks", REPORTS, bad, then=REPORTS)
    found = rolled_back(api, namespace)
    assert condition(found, "RolledBack") == ("True", reason)
    assert image_of(api, namespace, 3) == "jobs:1"
    assert found["status"].get("checkpointNumber", 1) == 1
    assert drivers_alive(api, namespace) == ["clicks-3-driver"]
    eventually(lambda: any(e["reason"] == "RolledBack" for e in api.events(namespace)))


def test_a_rollback_ends_with_another_spec(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """The third spec is tried, and stays when it makes an epoch."""
    assert volume
    kubelet.plan("clicks", REPORTS, ends(64, "no"), then=REPORTS)
    rolled_back(api, namespace)
    api.change(namespace, "clicks", {"spec": {"image": "jobs:3"}})
    found = job_when(api, namespace, running(4))
    assert image_of(api, namespace, 4) == "jobs:3"
    assert condition(found, "RolledBack") == ("False", "Over")
    wanted = found["status"]["driver"]["specHash"]
    job_when(api, namespace, lambda s: s["good"]["specHash"] == wanted)


def test_after_a_rollback_restart_nonce_tries_the_same_spec_again(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """What it lacked may be there now."""
    assert volume
    kubelet.plan("clicks", REPORTS, ends(64, "no"), then=REPORTS)
    rolled_back(api, namespace)
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    found = job_when(api, namespace, running(4))
    assert image_of(api, namespace, 4) == "jobs:2"
    assert condition(found, "RolledBack") == ("False", "Over")
