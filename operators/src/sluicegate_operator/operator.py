"""The operator as one process: caches, leader election, controllers and health, from start to shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from dataclasses import dataclass, field
from typing import Any

from sluicegate_operator.api.fields import GROUP
from sluicegate_operator.controllers.base import Controller
from sluicegate_operator.controllers.caches import Caches
from sluicegate_operator.controllers.checkpoint_volume import VolumeController
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.limits import Limits
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.controllers.savepoint import SavepointController
from sluicegate_operator.controllers.streaming_job import JobController
from sluicegate_operator.health import SILENT_S, STUCK_S, Health
from sluicegate_operator.kube.client import Api
from sluicegate_operator.kube.events import EventRecorder
from sluicegate_operator.kube.leader_election import LeaderElector
from sluicegate_operator.storage_tasks.queue import TaskSlots

log = logging.getLogger(__name__)

_DRAIN_S = 20.0
"""How long a shutdown waits for reconciliations in progress. Kubernetes' default grace period is 30 s."""


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of an operator.

    Args:
        namespaces: which are served; none: all.
        limits: what is permitted in them.
        lease_namespace: namespace of the Lease for which replicas compete.
        lease_name: its name; operators that serve different namespaces need different Leases.
        port: of health and metrics; 0: any.
        console_url: address of the console, to which Events link; empty: none.
        identity: of this process in the Lease. Processes that run at the same time need different ones. A
            process with the identity that the Lease names acquires it at once; the default, the host's
            name and a random part, is new at each start.
    """

    namespaces: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    lease_namespace: str = "sluicegate-system"
    lease_name: str = "sluicegate-operator"
    port: int = 8080
    console_url: str = ""
    identity: str = field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    )


class Operator:
    """An operator for one API server."""

    def __init__(self, api: Api, settings: OperatorSettings) -> None:
        self.metrics = Metrics()
        self.caches = Caches(api, settings.namespaces)
        lease = (settings.lease_namespace, settings.lease_name)
        self.elector = LeaderElector(api, *lease, settings.identity, self._leadership_changed)
        recorder = EventRecorder(api, "sluicegate-operator", f"{GROUP}/operator", settings.identity)
        checkpoints = CheckpointResolver(self.caches)
        elector, caches, metrics = self.elector, self.caches, self.metrics
        shared = (
            *(api, caches, lambda: elector.is_leader),
            *(recorder, checkpoints, metrics, settings.limits),
        )
        slots = TaskSlots()
        self.jobs = JobController(*shared, slots=slots, console_url=settings.console_url)
        self.volumes = VolumeController(*shared, slots=slots)
        self.savepoints = SavepointController(*shared, slots=slots)
        self._controllers: tuple[Controller[Any], ...]
        self._controllers = (self.jobs, self.volumes, self.savepoints)
        for one in self._controllers:
            self.metrics.watch_queue(one.queue)
        self.metrics.watch_caches(self.caches)
        self.metrics.watch_requests(api)
        self.health = Health(
            settings.port,
            self.metrics.registry,
            alive=[self._check_queues],
            ready=[self._check_caches, self._check_api_server],
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; then finish what is in progress and release the lease."""
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(self.health.run(), name="health"),
            asyncio.create_task(self.caches.run(), name="caches"),
            asyncio.create_task(self._lead(), name="lead"),
            asyncio.create_task(stop.wait(), name="stop"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(one.queue.drain(_DRAIN_S) for one in self._controllers))
            await asyncio.gather(*(one.close() for one in self._controllers))
            await self.elector.release()
            for task in done:
                task.result()  # a task that ended by itself has failed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self) -> None:
        """Compete for the lease once all caches are synced, and reconcile.

        Until then another's lease is observed, so that a dead leader's expires meanwhile.
        """
        observing = asyncio.create_task(self.elector.observe())
        try:
            while not self.caches.synced:  # noqa: ASYNC110 - only while starting
                await asyncio.sleep(0.05)
        finally:
            observing.cancel()
            await asyncio.gather(observing, return_exceptions=True)
        log.info("caches are synced: %d jobs", len(list(self.caches.jobs)))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.elector.run())
            for one in self._controllers:
                group.create_task(one.queue.run())

    def _leadership_changed(self, is_leader: bool) -> None:  # noqa: FBT001 - its only argument
        self.metrics.set_leader(is_leader)
        for one in self._controllers:
            if is_leader:
                one.enqueue_all()
            else:
                one.cancel_tasks()

    def _check_queues(self) -> str:
        busy = {one.queue.name: one.queue.busy_age_s for one in self._controllers}
        return "; ".join(
            f"{name}: a reconciliation has not ended for {seconds:.0f} s"
            for name, seconds in busy.items()
            if seconds > STUCK_S
        )

    def _check_api_server(self) -> str:
        listable = (cache for cache in self.caches.all() if not cache.list_error)
        silent = max((cache.silent_s for cache in listable), default=0.0)
        return f"the API server has not answered for {silent:.0f} s" if silent > SILENT_S else ""

    def _check_caches(self) -> str:
        if not self.caches.synced:
            return "the caches are not synced yet"
        return next((cache.list_error for cache in self.caches.required() if cache.list_error), "")
