"""Faults around the operator, one for each test, on a real API server.

After each fault exactly one driver runs, of the newest attempt, and no action was repeated.
"""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.local_services import S3Endpoint
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME
from sluicegate_operator.controllers.base import Controller
from sluicegate_operator.kube import client
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import Behavior, ends
from tests.integration.operator.freezable_proxy import FreezableProxy
from tests.integration.operator.job_fixtures import (
    REPORTS,
    drivers_alive,
    image_of,
    job_when,
    make_volume,
    phase,
    running,
)
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(240)]


def test_an_operator_killed_before_any_write_is_replaced_without_a_second_driver(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """From a job's creation to the replacement of a failed driver, the next operator continues."""
    for write in range(1, 12):
        name = f"clicks{write}"
        kubelet.plan(name, ends(1, "boom", after_s=0.2), then=REPORTS)
        api.create(namespace, name, spec_of(ready_volume))
        with RunningOperator(kubeconfig, namespace, kill_at_write=write) as first:
            eventually(
                lambda first=first, name=name: (  # type: ignore[misc]
                    first.killed.is_set() or running(2)(api.get(namespace, name).get("status", {}))
                ),
                within_s=60.0,
            )
            killed = first.killed.is_set()
        api.delete_lease(namespace)
        with RunningOperator(kubeconfig, namespace) as second:
            job_when(api, namespace, running(2), name)
            second.stop()
        api.delete_lease(namespace)
        pods_of_job = [pod for pod in api.pods(namespace) if pod.startswith(f"{name}-")]
        assert pods_of_job == [f"{name}-1-driver", f"{name}-2-driver"][-len(pods_of_job) :]
        assert [
            driver for driver in drivers_alive(api, namespace) if driver.startswith(f"{name}-")
        ] == [f"{name}-2-driver"]
        if not killed:
            assert write > 6, "the operator writes less often than this test assumes"
            return
        api.change(namespace, name, {"spec": {"suspend": True}})


def test_operators_that_are_killed_again_and_again_do_together_what_one_does(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """They replace a failed driver, upgrade the job, roll a bad spec back, and release the job.

    Each is killed after two to five writes. One that is killed after its first never requests a driver: the
    status is written before.
    """
    refused = ends(64, "SettingsInvalid: no such topic")
    kubelet.plan("clicks", ends(1, "boom", after_s=0.2), REPORTS, REPORTS, refused, then=REPORTS)
    operators = 0

    def go_on_until(done: Callable[[], bool]) -> None:
        nonlocal operators
        while not done():
            api.delete_lease(namespace)
            with RunningOperator(
                kubeconfig, namespace, kill_at_write=2 + operators % 4, kill_after_answer=True
            ) as operator:
                eventually(lambda: operator.killed.is_set() or done(), within_s=60.0)
            operators += operator.killed.is_set()

    def stable(attempt: int) -> bool:
        status = api.get(namespace, "clicks").get("status", {})
        last = status.get("lastStableSpec", {}).get("specHash")
        return bool(running(attempt)(status)) and last == status["driver"]["specHash"]

    rollback = {"enabled": True, "deadlineSeconds": 60}
    api.create(namespace, "clicks", spec_of(ready_volume, rollback=rollback))
    go_on_until(lambda: stable(2))
    for image, attempt, runs in (("jobs:2", 3, "jobs:2"), ("jobs:3", 5, "jobs:2")):
        api.change(namespace, "clicks", {"spec": {"image": image}})
        go_on_until(lambda attempt=attempt: stable(attempt))  # type: ignore[misc]
        assert drivers_alive(api, namespace) == [f"clicks-{attempt}-driver"]
        assert image_of(api, namespace, attempt) == runs
    api.delete(namespace, "clicks")
    go_on_until(lambda: not api.exists(namespace, "clicks"))
    assert drivers_alive(api, namespace) == []
    assert operators > 6, "the operator writes less often than this test assumes"


def test_a_job_edited_before_each_write_causes_conflicts_and_no_action(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """A write with an old version is refused (409 Conflict), and no action follows."""
    kubelet.plan("clicks", ends(1, "boom"), then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    edits = iter(range(1000))

    def edit(method: str, path: str) -> None:
        number = next(edits)
        if path.endswith("/streamingjobs/clicks/status") and method == "PUT" and number % 2 == 0:
            annotation = {"metadata": {"annotations": {"test": str(number)}}}
            api.change(namespace, "clicks", annotation)

    with RunningOperator(kubeconfig, namespace, before_write=edit) as operator:
        job_when(api, namespace, running(2))
        refused = [status for status in operator.answers if status == 409]
    assert refused
    assert drivers_alive(api, namespace) == ["clicks-2-driver"]


def test_a_killed_leader_is_replaced_when_its_lease_expires(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """Only one replica writes; once its lease has expired the other takes over."""
    kubelet.plan("clicks", then=REPORTS)
    with (
        RunningOperator(kubeconfig, namespace) as first,
        RunningOperator(kubeconfig, namespace) as second,
    ):
        api.create(namespace, "clicks", spec_of(ready_volume))
        job_when(api, namespace, running(1))
        leader, follower = (first, second) if first.writes else (second, first)
        assert not follower.writes
        leader.kill()
        api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
        job_when(api, namespace, running(2))
    assert drivers_alive(api, namespace) == ["clicks-2-driver"]


def test_stopped_leader_releases_its_lease(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace) as first:
        job_when(api, namespace, running(1))
        first.stop()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/sluicegate-operator"
    assert not api.request("GET", path)["spec"].get("holderIdentity")
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(2))


def test_pod_deleted_by_hand_is_replaced(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(1))
        api.delete_pod(namespace, "clicks-1-driver")
        job_when(api, namespace, running(2))


def test_deleted_node_confirms_that_the_driver_is_dead(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """A stateful job waits while its node is lost, and continues once the node is deleted."""
    node = f"{namespace}-1"
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(1))
        kubelet.disconnect(node)
        job_when(
            api,
            namespace,
            lambda s: any(
                c["type"] == "NodeLost" and c["status"] == "True" for c in s.get("conditions", ())
            ),
        )
        assert drivers_alive(api, namespace) == ["clicks-1-driver"]
        kubelet.delete_node(node)
        job_when(api, namespace, lambda s: s.get("attempt") == 2)


def test_wiped_status_is_rebuilt(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """The running driver is adopted, not replaced."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(1))
        api.clear_status(namespace, "clicks")
        job_when(api, namespace, running(1))
    assert api.pods(namespace) == ["clicks-1-driver"]


def test_a_job_deleted_while_its_driver_starts_is_released(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    kubelet.plan("clicks", then=Behavior(starts_after_s=5.0))
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, phase("Starting"))
        api.delete(namespace, "clicks")
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=90.0)
    assert drivers_alive(api, namespace) == []


def test_a_job_deleted_before_it_has_a_finalizer_gets_no_driver(
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its driver would have no owner, and nobody would ever stop it."""
    kubelet.plan("clicks", then=REPORTS)
    set_finalizer, deleted = Controller._set_finalizer, threading.Event()

    async def delete_before(self: Any, key: Any, *, present: bool) -> bool:  # noqa: ANN401 - any controller
        if present and key == (namespace, "clicks"):
            await asyncio.to_thread(api.delete, namespace, "clicks")
            while self._cache.get(key) is not None:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.05)
            deleted.set()
        return await set_finalizer(self, key, present=present)

    monkeypatch.setattr(Controller, "_set_finalizer", delete_before)
    with RunningOperator(kubeconfig, namespace):
        api.create(namespace, "clicks", spec_of(ready_volume))
        assert deleted.wait(60.0)
        time.sleep(1.0)  # the driver would be created by the next request
    assert api.pods(namespace) == []


def test_the_operator_survives_a_restart_of_the_api_server(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """Meanwhile a driver fails; the operator comes back by itself and replaces it."""
    api_down = dataclasses.replace(REPORTS, runs_s=3.0, exit_code=1)
    kubelet.plan("clicks", api_down, then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(1))
        api.server.api.restart()
        job_when(api, namespace, running(2))
    assert drivers_alive(api, namespace) == ["clicks-2-driver"]


def test_dead_watch_is_detected(  # noqa: PLR0913, PLR0917 - fixtures
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nothing arrives and no connection closes; the next watch delivers what was missed."""
    monkeypatch.setattr(client, "SILENT_S", 3.0)
    kubelet.plan("clicks", then=REPORTS)
    with FreezableProxy(api.server.port) as proxy:
        proxied_kubeconfig = proxy.kubeconfig(kubeconfig, tmp_path)
        with RunningOperator(proxied_kubeconfig, namespace):
            api.create(namespace, "clicks", spec_of(ready_volume))
            job_when(api, namespace, running(1))
            proxy.freeze()
            api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
            job_when(api, namespace, running(2))


def test_volume_and_job_recover_once_the_store_is_reachable(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, bucket: S3Endpoint
) -> None:
    """The volume fails with the reason and the job waits; both continue once the store is reachable."""
    kubelet.plan("clicks", then=REPORTS)
    make_volume(api, namespace, bucket, endpoint="http://127.0.0.1:9")
    api.create(namespace, "clicks", spec_of("store"))
    with RunningOperator(kubeconfig, namespace):
        job = job_when(api, namespace, lambda s: "StoreUnavailable" in str(s))
        assert api.pods(namespace) == []
        assert job["status"]["phase"] == "Pending"
        api.change(namespace, "store", {"spec": {"endpoint": bucket.endpoint}}, CHECKPOINT_VOLUME)
        job_when(api, namespace, running(1))


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0], ids=["ahead", "back"])
def test_a_clock_jump_replaces_no_running_driver(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str, jump_s: float
) -> None:
    """A day ahead or back: a running driver is left alone, and a failed one is replaced."""
    offset_s = [0.0]
    kubelet.plan("clicks", Behavior(runs_s=6.0, exit_code=1, progress_every_s=0.5), then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(
        kubeconfig, namespace, clock=lambda: time.time() + offset_s[0]
    ) as operator:
        job_when(
            api, namespace, lambda s: running(1)(s) and s.get("checkpoint", {}).get("lastEpochTime")
        )
        offset_s[0] = jump_s
        operator.reconcile_now((namespace, "clicks"))
        assert drivers_alive(api, namespace) == ["clicks-1-driver"]
        job_when(api, namespace, running(2))
    assert drivers_alive(api, namespace) == ["clicks-2-driver"]
