"""Stale caches: watches that are late and repeat old versions, and a status that somebody edited.

Whatever the operator sees, it never creates a driver while another one is alive.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate_operator.kube.resource import Json
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import ends
from tests.integration.operator.job_fixtures import REPORTS, drivers_alive, job_when, phase, running
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.faults,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("short_request_times"),
]

DELAY_S = 1.5
"""Longer than the delay after which the operator requests an absent pod again, here 1 s."""


def late_and_repeated(*plurals: str) -> Callable[[str, AsyncIterator[Json]], AsyncIterator[Json]]:
    """Return a filter that delays the events of some kinds, and repeats old ones after newer ones."""

    async def late(events: AsyncIterator[Json]) -> AsyncIterator[Json]:
        queue: asyncio.Queue[tuple[float, Json]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def read() -> None:
            async for event in events:
                queue.put_nowait((clock() + DELAY_S, event))

        reading = asyncio.create_task(read())
        delivered: dict[str, Json] = {}
        try:
            while True:
                due, event = await queue.get()
                await asyncio.sleep(max(0.0, due - clock()))
                yield event
                if event["type"] == "BOOKMARK":
                    continue
                uid = event["object"]["metadata"]["uid"]
                if uid in delivered:
                    yield delivered[uid]  # repeated although a newer version was delivered
                delivered[uid] = event
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    def event_filter(path: str, events: AsyncIterator[Json]) -> AsyncIterator[Json]:
        return late(events) if path.rpartition("/")[2] in plurals else events

    return event_filter


class DriverObserver:
    """Observes each pod that the operator creates, and the drivers alive at that time."""

    def __init__(self, api: Api, namespace: str) -> None:
        """Start without observations."""
        self._api, self._namespace = api, namespace
        self.alive_at_creation: list[list[str]] = []
        """For each pod that was requested: the drivers that were alive."""

    def __call__(self, method: str, path: str) -> None:
        """Observe a write before it is sent."""
        if method == "POST" and path.endswith("/pods"):
            self.alive_at_creation.append(drivers_alive(self._api, self._namespace))


@pytest.mark.parametrize(
    "plurals", [("pods",), ("pods", "streamingjobs")], ids=["pods", "pods and jobs"]
)
def test_late_and_repeated_watch_events_cause_no_second_driver(
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    plurals: tuple[str, ...],
) -> None:
    """Each attempt has one pod, created while no other was alive.

    A driver fails, one is deleted by hand, the operator is replaced, the spec changes, the job is suspended
    and resumed.
    """
    kubelet.plan("clicks", ends(1, "boom", after_s=1.0), then=REPORTS)
    observer, event_filter = DriverObserver(api, namespace), late_and_repeated(*plurals)

    def operator() -> RunningOperator:
        return RunningOperator(
            kubeconfig, namespace, before_write=observer, event_filter=event_filter
        )

    with operator():
        api.create(namespace, "clicks", spec_of(ready_volume))
        job_when(api, namespace, running(2))
        api.delete_pod(namespace, "clicks-2-driver")
        eventually(lambda: "clicks-3-driver" in api.pods(namespace), within_s=60.0)
    api.delete_lease(namespace)
    with operator():
        job_when(api, namespace, running(3))
        api.change(namespace, "clicks", {"spec": {"image": "jobs:2"}})
        job_when(api, namespace, running(4))
        api.change(namespace, "clicks", {"spec": {"suspend": True}})
        job_when(api, namespace, phase("Suspended"))
        api.change(namespace, "clicks", {"spec": {"suspend": False}})
        job_when(api, namespace, running(5))
    assert all(not alive_at_creation for alive_at_creation in observer.alive_at_creation), (
        observer.alive_at_creation
    )
    assert drivers_alive(api, namespace) == ["clicks-5-driver"]


EDITS: dict[str, dict[str, Any]] = {
    "attempt lowered": {"attempt": 0},
    "attempt raised": {"attempt": 7},
    "phase changed": {"phase": "Failed"},
    "restarts changed": {"restarts": 1000},
    "driver marked as terminated": {"driver": {"state": "Terminated"}},
    "driver removed": {"driver": None},
    "failure reason set": {"failureReason": "DriverFailed"},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_status_causes_no_second_driver(
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    kubeconfig: Path,
    ready_volume: str,
    edit: dict[str, Any],
) -> None:
    """In the end the job runs with one driver, and none was created while another was alive."""
    kubelet.plan("clicks", ends(1, "boom"), then=REPORTS)
    observer = DriverObserver(api, namespace)
    with RunningOperator(kubeconfig, namespace, before_write=observer) as operator:
        api.create(namespace, "clicks", spec_of(ready_volume))
        job_when(api, namespace, running(2))
        api.change_status(namespace, "clicks", edit)
        operator.reconcile_now((namespace, "clicks"))

        def is_at_rest() -> bool:
            """Return whether the job runs with the one driver in its status."""
            operator.reconcile_now((namespace, "clicks"))
            status = api.get(namespace, "clicks")["status"]
            alive = drivers_alive(api, namespace)
            return _at_rest(status) and alive == [f"clicks-{status['attempt']}-driver"]

        eventually(is_at_rest, within_s=90.0)
    assert all(not alive_at_creation for alive_at_creation in observer.alive_at_creation), (
        observer.alive_at_creation
    )


def _at_rest(status: dict[str, Any]) -> bool:
    """Return whether a job runs and its driver is recorded and not being stopped."""
    driver = status.get("driver", {})
    active = driver.get("state") == "Active" and not driver.get("stopReason")
    return bool(active and phase("Running")(status))
