"""What may go wrong around the operator: each test is one fault, on a real API server.

After every fault there is one driver, of the newest attempt, and nothing was done twice.
"""

import dataclasses
import time
from pathlib import Path

import pytest

from infra.embedded import S3Endpoint
from sluicegate_operator.cluster import client
from sluicegate_operator.resources.kinds import CHECKPOINT_VOLUME
from tests.operator.api import Api, eventually
from tests.operator.behaviours import Behaviour, ends
from tests.operator.kubelet import Kubelet
from tests.operator.running import RunningOperator, spec_of
from tests.operator.scenes import (
    REPORTS,
    drivers_alive,
    job_when,
    make_volume,
    phase,
    running,
)
from tests.operator.wire import Wire

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(240)]


@pytest.mark.parametrize("cut_after", [False, True], ids=["before", "after"])
def test_an_operator_killed_at_any_write(
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    *,
    cut_after: bool,
) -> None:
    """From a job's creation over a failed driver to its replacement: the next operator goes on."""
    for write in range(1, 12):
        name = f"clicks{write}"
        kubelet.plan(name, ends(1, "boom", after_s=0.2), then=REPORTS)
        api.create(namespace, name, spec_of(ready_volume))
        with RunningOperator(kubeconfig, namespace, cut_at=write, cut_after=cut_after) as first:
            eventually(
                lambda first=first, name=name: (  # type: ignore[misc]
                    first.cut.is_set() or running(2)(api.get(namespace, name).get("status", {}))
                ),
                within_s=60.0,
            )
            died = first.cut.is_set()
        api.forget_lease(namespace)
        with RunningOperator(kubeconfig, namespace) as second:
            job_when(api, namespace, running(2), name)
            second.stop()
        api.forget_lease(namespace)
        mine = [pod for pod in api.pods(namespace) if pod.startswith(f"{name}-")]
        assert mine == [f"{name}-1-driver", f"{name}-2-driver"][-len(mine) :]
        assert [one for one in drivers_alive(api, namespace) if one.startswith(f"{name}-")] == [
            f"{name}-2-driver"
        ]
        if not died:
            assert write > 6, "the operator writes less than was thought"
            return
        api.change(namespace, name, {"spec": {"suspend": True}})


def test_somebody_else_edits_the_job_before_each_write(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """A write under an old version is refused (409), and nothing is done on its behalf."""
    kubelet.plan("clicks", ends(1, "boom"), then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    edits = iter(range(1000))

    def edit(method: str, path: str) -> None:
        number = next(edits)
        if path.endswith("/streamingjobs/clicks/status") and method == "PUT" and number % 2 == 0:
            note = {"metadata": {"annotations": {"test": str(number)}}}
            api.change(namespace, "clicks", note)

    with RunningOperator(kubeconfig, namespace, before_write=edit) as operator:
        job_when(api, namespace, running(2))
        refused = [status for status in operator.answers if status == 409]
    assert refused
    assert drivers_alive(api, namespace) == ["clicks-2-driver"]


def test_two_operators_and_the_leader_dies(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """One acts, the other watches; when the first is killed the other goes on within its lease."""
    kubelet.plan("clicks", then=REPORTS)
    with (
        RunningOperator(kubeconfig, namespace) as first,
        RunningOperator(kubeconfig, namespace) as second,
    ):
        api.create(namespace, "clicks", spec_of(ready_volume))
        job_when(api, namespace, running(1))
        leader, other = (first, second) if first.writes else (second, first)
        assert not other.writes
        leader.kill()
        api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
        job_when(api, namespace, running(2))
    assert drivers_alive(api, namespace) == ["clicks-2-driver"]


def test_a_leader_that_is_stopped_lets_go_of_the_lease(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace) as first:
        job_when(api, namespace, running(1))
        first.stop()
    began = time.monotonic()
    api.change(namespace, "clicks", {"spec": {"restartNonce": 1}})
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(2))
    assert time.monotonic() - began < 14.0, "a lease that was kept lasts for 15 s"


def test_a_pod_deleted_by_hand_is_replaced(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(1))
        api.delete_pod(namespace, "clicks-1-driver")
        job_when(api, namespace, running(2))


def test_a_node_that_vanishes_is_proof_of_death(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """While it is only silent a stateful job waits and says so; its deletion lets it go on."""
    node = f"{namespace}-1"
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(1))
        kubelet.silence(node)
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


def test_a_status_that_somebody_wiped_is_rebuilt(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    """The driver that runs is taken over, not replaced."""
    kubelet.plan("clicks", then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, running(1))
        api.wipe_status(namespace, "clicks")
        job_when(api, namespace, running(1))
    assert api.pods(namespace) == ["clicks-1-driver"]


def test_a_job_deleted_while_its_driver_starts_goes(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str
) -> None:
    kubelet.plan("clicks", then=Behaviour(starts_after_s=5.0))
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace):
        job_when(api, namespace, phase("Starting"))
        api.delete(namespace, "clicks")
        eventually(lambda: not api.exists(namespace, "clicks"), within_s=90.0)
    assert drivers_alive(api, namespace) == []


def test_the_api_server_is_restarted(
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


def test_a_watch_that_is_silently_dead_is_noticed(  # noqa: PLR0913, PLR0917 - fixtures
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nothing comes through any more and nobody says so: the next watch has what was missed."""
    monkeypatch.setattr(client, "SILENT_S", 3.0)
    kubelet.plan("clicks", then=REPORTS)
    with Wire(api.server.port) as wire:
        config = wire.kubeconfig(kubeconfig, tmp_path)
        with RunningOperator(config, namespace):
            api.create(namespace, "clicks", spec_of(ready_volume))
            job_when(api, namespace, running(1))
            wire.freeze()
            api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
            job_when(api, namespace, running(2))


def test_the_store_is_down_when_the_volume_is_made(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, bucket: S3Endpoint
) -> None:
    """The volume has failed and says why, the job waits; both go on when the store is there."""
    kubelet.plan("clicks", then=REPORTS)
    make_volume(api, namespace, bucket, endpoint="http://127.0.0.1:9")
    api.create(namespace, "clicks", spec_of("store"))
    with RunningOperator(kubeconfig, namespace):
        found = job_when(api, namespace, lambda s: "StoreUnavailable" in str(s))
        assert api.pods(namespace) == []
        assert found["status"]["phase"] == "Pending"
        api.change(namespace, "store", {"spec": {"endpoint": bucket.endpoint}}, CHECKPOINT_VOLUME)
        job_when(api, namespace, running(1))


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0], ids=["ahead", "back"])
def test_the_clock_jumps(
    api: Api, namespace: str, kubelet: Kubelet, kubeconfig: Path, ready_volume: str, jump_s: float
) -> None:
    """A day ahead or back: the driver that runs is left alone, and one that fails is replaced."""
    off = [0.0]
    kubelet.plan("clicks", Behaviour(runs_s=6.0, exit_code=1, progress_every_s=0.5), then=REPORTS)
    api.create(namespace, "clicks", spec_of(ready_volume))
    with RunningOperator(kubeconfig, namespace, clock=lambda: time.time() + off[0]) as operator:
        job_when(api, namespace, lambda s: running(1)(s) and s.get("lastEpochTime"))
        off[0] = jump_s
        operator.look((namespace, "clicks"))
        assert drivers_alive(api, namespace) == ["clicks-1-driver"]
        job_when(api, namespace, running(2))
    assert drivers_alive(api, namespace) == ["clicks-2-driver"]
