"""What the operator remembers of pods and nodes, by its own clock, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import pytest

from sluicegate_operator.api import labels
from sluicegate_operator.controllers import observer as observer_module
from sluicegate_operator.controllers.caches import Caches
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.observer import Observer
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.resource import Json
from sluicegate_operator.reconcile.observed import Pod
from tests.unit.operator.builders import NOW, job
from tests.unit.operator.clocks import Clock


class NodeServer:
    """An API server without nodes; `asked` runs while a request for one is in progress."""

    def __init__(self) -> None:
        self.asked: Callable[[], object] = lambda: None

    async def request(self, _method: str, path: str, **_: Any) -> Json:
        self.asked()
        raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f"no {path}")


class Shop:
    """The observer of one job, with a cache of pods that a test fills."""

    def __init__(self) -> None:
        api: Any = NodeServer()
        self.server = api
        self.caches = Caches(api)
        for cache in self.caches.all():
            for informer in cache.informers.values():
                informer.listed_at = NOW
        self.observer = Observer(api, self.caches, CheckpointResolver(self.caches))

    def put(
        self,
        attempt: int,
        node: str = "",
        created: str = "2027-01-15T07:00:00Z",
        **meta: str,
    ) -> None:
        """Store the pod of an attempt."""
        self.caches.pods.put(
            {
                "metadata": {
                    "namespace": "shop",
                    "name": f"clicks-{attempt}-driver",
                    "uid": f"u-{attempt}",
                    "resourceVersion": str(attempt),
                    "creationTimestamp": created,
                    "labels": {
                        labels.JOB: "clicks",
                        labels.JOB_UID: "u-job",
                        labels.ATTEMPT: str(attempt),
                    },
                    **meta,
                },
                "spec": {"nodeName": node},
            }
        )

    def delete_all(self) -> None:
        """Let the cache observe that all pods are gone."""
        for _, name in list(self.caches.pods):
            self.delete(int(name.split("-")[1]))

    def delete(self, attempt: int) -> None:
        """Let the cache observe that the pod of an attempt is gone."""
        informer = self.caches.pods.informers[""]
        informer.remove(("shop", f"clicks-{attempt}-driver"), f"u-{attempt}")

    async def pods(self, now: float) -> tuple[Pod, ...]:
        """Return what is observed of the job's pods."""
        return (await self.observer.observe(job(), now)).pods


def run(scene: Callable[[Shop], Awaitable[None]]) -> None:
    """Run a scene with a new observer."""

    async def scenario() -> None:
        await scene(Shop())

    asyncio.run(scenario())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the monotonic clock of the observer."""
    clock = Clock()
    monkeypatch.setattr(observer_module, "time", clock)
    return clock


def test_since_when_a_pod_terminates_is_measured_by_the_operators_clock(clock: Clock) -> None:
    async def scene(shop: Shop) -> None:
        shop.put(1)
        assert [one.seen_terminating_at for one in await shop.pods(NOW)] == [None]
        clock.now += 40
        shop.put(1, deletionTimestamp="2027-01-15T04:00:00Z", resourceVersion="9")
        for seconds in (40, 50):
            (pod,) = await shop.pods(NOW + seconds)
            assert pod.seen_terminating_at == NOW + 40
            clock.now += 10

    run(scene)


@pytest.mark.parametrize("created", ["2027-01-15T04:00:00Z", "2027-01-15T12:00:00Z"])
def test_the_age_of_a_pod_is_measured_by_the_operators_clock(clock: Clock, created: str) -> None:
    """The clock of the API server, which writes creationTimestamp, may differ by hours."""

    async def scene(shop: Shop) -> None:
        shop.put(1, created=created)
        assert [one.seen_at for one in await shop.pods(NOW)] == [NOW]
        clock.now += 40
        assert [one.seen_at for one in await shop.pods(NOW + 40)] == [NOW]

    run(scene)


def test_nothing_is_remembered_of_a_pod_that_goes_while_its_node_is_looked_up(clock: Clock) -> None:
    async def scene(shop: Shop) -> None:
        shop.put(1, node="lost")
        shop.put(2, node="lost-too")
        shop.server.asked = shop.delete_all
        await shop.pods(NOW)
        assert not shop.observer._first_seen

    run(scene)
    assert clock.now == Clock().now


def test_absent_nodes_are_remembered_only_as_long_as_that_counts(clock: Clock) -> None:
    """A cluster that scales has nodes of ever new names."""

    async def scene(shop: Shop) -> None:
        for attempt in range(1, 6):
            shop.put(attempt, node=f"node-{attempt}")
            await shop.pods(NOW)
            shop.delete(attempt)
            clock.now += 60
        assert len(shop.observer._absent_nodes) == 1

    run(scene)
