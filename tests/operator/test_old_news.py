"""Old news: watches that are behind and repeat old versions, and a status that somebody edited.

Whatever the operator is told, there is never a second driver beside one that lives.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate_operator.cluster.client import Json
from tests.operator.api import Api, eventually
from tests.operator.behaviours import ends
from tests.operator.kubelet import Kubelet
from tests.operator.running import RunningOperator, spec_of
from tests.operator.scenes import REPORTS, drivers_alive, job_when, phase, running

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(240)]

BEHIND_S = 7.0
"""More than after which a pod that is not seen is asked for again."""


def behind(*plurals: str) -> Callable[[str, AsyncIterator[Json]], AsyncIterator[Json]]:
    """Return what makes the events of some kinds late, and tells old ones again after newer ones."""

    async def late(events: AsyncIterator[Json]) -> AsyncIterator[Json]:
        queue: asyncio.Queue[tuple[float, Json]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def read() -> None:
            async for event in events:
                queue.put_nowait((clock() + BEHIND_S, event))

        reading = asyncio.create_task(read())
        told: dict[str, Json] = {}
        try:
            while True:
                due, event = await queue.get()
                await asyncio.sleep(max(0.0, due - clock()))
                yield event
                if event["type"] == "BOOKMARK":
                    continue
                uid = event["object"]["metadata"]["uid"]
                if uid in told:
                    yield told[uid]  # once more, though something newer was told
                told[uid] = event
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    def between(path: str, events: AsyncIterator[Json]) -> AsyncIterator[Json]:
        return late(events) if path.rpartition("/")[2] in plurals else events

    return between


class Witness:
    """Sees each pod that the operator makes, and the drivers that live then."""

    def __init__(self, api: Api, namespace: str) -> None:
        """Nothing was made yet."""
        self._api, self._namespace = api, namespace
        self.beside: list[list[str]] = []
        """For each pod that was asked for: the drivers that lived."""

    def __call__(self, method: str, path: str) -> None:
        """Look, before a write."""
        if method == "POST" and path.endswith("/pods"):
            self.beside.append(drivers_alive(self._api, self._namespace))


@pytest.mark.parametrize(
    "plurals", [("pods",), ("pods", "streamingjobs")], ids=["pods", "pods and jobs"]
)
def test_watches_that_are_behind_and_repeat_themselves(
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    plurals: tuple[str, ...],
) -> None:
    """Each attempt has one pod, which was made when no other lived.

    A driver fails, one is deleted by hand, the operator is replaced, the spec changes, the job is
    suspended and resumed.
    """
    kubelet.plan("clicks", ends(1, "boom", after_s=1.0), then=REPORTS)
    witness, between = Witness(api, namespace), behind(*plurals)

    def operator() -> RunningOperator:
        return RunningOperator(kubeconfig, namespace, before_write=witness, between=between)

    with operator():
        api.create(namespace, "clicks", spec_of(ready_volume))
        job_when(api, namespace, running(2))
        api.delete_pod(namespace, "clicks-2-driver")
        eventually(lambda: "clicks-3-driver" in api.pods(namespace), within_s=60.0)
    api.forget_lease(namespace)
    with operator():
        job_when(api, namespace, running(3))
        api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
        job_when(api, namespace, running(4))
        api.change(namespace, "clicks", {"spec": {"suspend": True}})
        job_when(api, namespace, phase("Suspended"))
        api.change(namespace, "clicks", {"spec": {"suspend": False}})
        job_when(api, namespace, running(5))
    assert all(not beside for beside in witness.beside), witness.beside
    assert drivers_alive(api, namespace) == ["clicks-5-driver"]


EDITS: dict[str, dict[str, Any]] = {
    "attempt lowered": {"attempt": 0},
    "attempt raised": {"attempt": 7},
    "phase changed": {"phase": "Failed"},
    "restarts changed": {"restarts": 1000},
    "driver said to have ended": {"driver": {"state": "Ended"}},
    "driver forgotten": {"driver": None},
    "failed set": {"failed": "DriverFailed"},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_status_that_somebody_edited(
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    edit: dict[str, Any],
) -> None:
    """The job runs in the end, with one driver, and none was made beside one that lived."""
    kubelet.plan("clicks", ends(1, "boom"), then=REPORTS)
    witness = Witness(api, namespace)
    with RunningOperator(kubeconfig, namespace, before_write=witness) as operator:
        api.create(namespace, "clicks", spec_of(ready_volume))
        job_when(api, namespace, running(2))
        api.change_status(namespace, "clicks", edit)
        operator.look((namespace, "clicks"))

        def rests() -> bool:
            """Return whether the job runs with one driver, the one that the status knows."""
            operator.look((namespace, "clicks"))
            status = api.get(namespace, "clicks")["status"]
            alive = drivers_alive(api, namespace)
            return _at_rest(status) and alive == [f"clicks-{status['attempt']}-driver"]

        eventually(rests, within_s=90.0)
    assert all(not beside for beside in witness.beside), witness.beside


def _at_rest(status: dict[str, Any]) -> bool:
    """Return whether a job runs and its driver is known and not being stopped."""
    driver = status.get("driver", {})
    known = driver.get("state") == "Alive" and not driver.get("stopping")
    return bool(known and phase("Running")(status))
