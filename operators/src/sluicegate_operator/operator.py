"""The operator as one process: caches, leader election, controllers and health, from start to shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate_operator.api.fields import GROUP
from sluicegate_operator.controllers.base import Controller
from sluicegate_operator.controllers.caches import Cache, Caches
from sluicegate_operator.controllers.checkpoint_volume import VolumeController
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.controllers.savepoint import SavepointController
from sluicegate_operator.controllers.streaming_job import JobController
from sluicegate_operator.health import SILENT_S, STUCK_S, Check, Health
from sluicegate_operator.kube.client import Api
from sluicegate_operator.kube.events import EventRecorder
from sluicegate_operator.kube.leader_election import LeaderElector

log = logging.getLogger(__name__)

_DRAIN_S = 20.0
"""How long a shutdown waits for reconciliations in progress. Kubernetes' default grace period is 30 s."""


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of an operator.

    Args:
        namespaces: which are served; none: all.
        lease_namespace: namespace of the Lease for which replicas compete.
        lease_name: its name; operators that serve different namespaces need different Leases.
        port: of health and metrics; 0: any.
        identity: of this process in the Lease. Processes that run at the same time need different ones. A
            process with the identity that the Lease names acquires it at once; the default, the host's
            name and a random part, is new at each start.
    """

    namespaces: tuple[str, ...] = ()
    lease_namespace: str = "sluicegate-system"
    lease_name: str = "sluicegate-operator"
    port: int = 8080
    identity: str = field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    )


class Operator:
    """An operator for one API server."""

    def __init__(self, api: Api, settings: OperatorSettings) -> None:
        self.metrics = Metrics()
        self.caches = Caches(api, settings.namespaces)
        self.elector = LeaderElector(
            api,
            settings.lease_namespace,
            settings.lease_name,
            settings.identity,
            self._leadership_changed,
        )
        recorder = EventRecorder(api, "sluicegate-operator", f"{GROUP}/operator", settings.identity)
        checkpoints = CheckpointResolver(self.caches)
        shared = (
            api,
            self.caches,
            lambda: self.elector.is_leader,
            recorder,
            checkpoints,
            self.metrics,
        )
        self.jobs = JobController(*shared)
        self.volumes = VolumeController(*shared)
        self.savepoints = SavepointController(*shared)
        self._controllers: tuple[Controller[Any], ...] = (
            self.jobs,
            self.volumes,
            self.savepoints,
        )
        for one in self._controllers:
            self.metrics.watch_queue(one.queue)
        self.health = Health(
            settings.port,
            self.metrics.registry,
            alive=[*(_queue_check(one) for one in self._controllers), self._check_api_server],
            ready=[self._check_caches],
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; then finish what is in progress and release the lease."""
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(self.health.run(), name="health"),
            asyncio.create_task(self.caches.run(), name="caches"),
        ]
        try:
            tasks.append(asyncio.create_task(self._lead(), name="lead"))
            tasks.append(asyncio.create_task(stop.wait(), name="stop"))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(one.queue.drain(_DRAIN_S) for one in self._controllers))
            await asyncio.gather(self.volumes.close(), self.savepoints.close())
            await self.elector.release()
            for task in done:
                task.result()  # a task that ended by itself has failed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self) -> None:
        """Compete for the lease once all caches are synced, and reconcile."""
        while not self.caches.synced:  # noqa: ASYNC110 - only while starting
            await asyncio.sleep(0.05)
        log.info("caches are synced: %d jobs", sum(1 for _ in self.caches.jobs.items()))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.elector.run())
            for one in self._controllers:
                group.create_task(one.queue.run())

    def _leadership_changed(self, is_leader: bool) -> None:  # noqa: FBT001 - its only argument
        self.metrics.set_leader(is_leader)
        if is_leader:
            for one in self._controllers:
                one.enqueue_all()

    def _check_api_server(self) -> str:
        silent = max((cache.silent_s for cache in self._listable()), default=0.0)
        return f"the API server has not answered for {silent:.0f} s" if silent > SILENT_S else ""

    def _listable(self) -> Sequence[Cache[object]]:
        return [cache for cache in self.caches.all() if not cache.list_error]

    def _check_caches(self) -> str:
        if not self.caches.synced:
            return "the caches are not synced yet"
        return next((cache.list_error for cache in self.caches.required() if cache.list_error), "")


def _queue_check(controller: Controller[Any]) -> Check:
    def check() -> str:
        waited = controller.queue.oldest_age_s
        if waited <= STUCK_S:
            return ""
        return f"{controller.queue.name}: a resource has waited for {waited:.0f} s"

    return check
