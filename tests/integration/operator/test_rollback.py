"""Rollback on a real API server: the last stable spec replaces a new one that completes no epoch."""

import pytest

from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import NO_IMAGE, RUNS, Behavior, ends
from tests.integration.operator.job_fixtures import (
    REPORTS,
    condition,
    drivers_alive,
    image_of,
    job_when,
    running,
)
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import spec_of
from tests.integration.operator.rest_client import Object

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("operator"),
]

ROLLBACK = {"enabled": True, "deadlineSeconds": 3}


def roll_back(api: Api, namespace: str) -> Object:
    """Replace a stable spec by a bad one; return the job once the stable spec runs again."""
    spec = spec_of(
        "store", rollback=ROLLBACK, startup={"imagePullTimeoutSeconds": 1, "imagePullAttempts": 0}
    )
    api.create(namespace, "clicks", spec)
    job_when(api, namespace, lambda s: running(1)(s) and s.get("lastStableSpec"))
    api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
    return job_when(api, namespace, running(3))


@pytest.mark.parametrize(
    ("behavior", "reason"),
    [
        (RUNS, "NoEpoch"),
        (ends(64, "SettingsInvalid: no such topic"), "SettingsRefused"),
        (NO_IMAGE, "ImageNotPulled"),
    ],
    ids=["no epoch in time", "failed for good", "no image"],
)
def test_spec_without_an_epoch_is_rolled_back(
    api: Api, namespace: str, kubelet: Kubelet, volume: str, behavior: Behavior, reason: str
) -> None:
    """The condition RolledBack and a warning have the reason; the checkpoint is the stable one's."""
    assert volume
    kubelet.plan("clicks", REPORTS, behavior, then=REPORTS)
    job = roll_back(api, namespace)
    assert condition(job, "RolledBack") == ("True", reason)
    assert image_of(api, namespace, 3) == "jobs:1"
    assert job["status"]["checkpoint"]["number"] == 1
    assert drivers_alive(api, namespace) == ["clicks-3-driver"]
    eventually(lambda: any(e["reason"] == "RolledBack" for e in api.events(namespace)))


def test_changed_spec_ends_a_rollback(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """The third spec is tried, and is retained if it completes an epoch."""
    assert volume
    kubelet.plan("clicks", REPORTS, ends(64, "no"), then=REPORTS)
    roll_back(api, namespace)
    api.change(namespace, "clicks", {"spec": {"image": "jobs:3"}})
    job = job_when(api, namespace, running(4))
    assert image_of(api, namespace, 4) == "jobs:3"
    assert condition(job, "RolledBack") == ("False", "Resolved")
    expected = job["status"]["driver"]["specHash"]
    job_when(api, namespace, lambda s: s["lastStableSpec"]["specHash"] == expected)


def test_changed_restart_nonce_tries_the_same_spec_again(
    api: Api, namespace: str, kubelet: Kubelet, volume: str
) -> None:
    """The cause of its failure may have been fixed."""
    assert volume
    kubelet.plan("clicks", REPORTS, ends(64, "no"), then=REPORTS)
    roll_back(api, namespace)
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    job = job_when(api, namespace, running(4))
    assert image_of(api, namespace, 4) == "jobs:2"
    assert condition(job, "RolledBack") == ("False", "Resolved")
