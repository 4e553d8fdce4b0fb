"""The operator as one process: views, lease, controllers, health; begun and ended in order.

Not here: arguments and logs (`__main__`). Called by `__main__` and by tests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate_operator.cluster.client import Api
from sluicegate_operator.cluster.events import Recorder
from sluicegate_operator.service.controller import Controller
from sluicegate_operator.service.health import SILENT_S, STUCK_S, Check, Health
from sluicegate_operator.service.jobs import JobController
from sluicegate_operator.service.lease import Lease
from sluicegate_operator.service.metrics import Metrics
from sluicegate_operator.service.places import Places
from sluicegate_operator.service.stored import SavepointController, VolumeController
from sluicegate_operator.service.views import View, Views

log = logging.getLogger(__name__)

_DRAIN_S = 20.0
"""How long what was begun may take to end. Kubernetes gives 30 s by default."""


@dataclass(frozen=True)
class OperatorSettings:
    """What an operator is told.

    Args:
        namespaces: those that it serves; none: all.
        lease_namespace: where the Lease is that replicas compete for.
        lease_name: its name; operators that serve different namespaces need different ones.
        port: of health and metrics; 0: any.
        identity: of the process among those that live at the same time: who comes back under the
            name that a Lease has takes it at once; by default a new one, with the host's name.
    """

    namespaces: tuple[str, ...] = ()
    lease_namespace: str = "sluicegate-system"
    lease_name: str = "sluicegate-operator"
    port: int = 8080
    identity: str = field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    )


class Operator:
    """An operator on one API server."""

    def __init__(self, api: Api, settings: OperatorSettings) -> None:
        self.metrics = Metrics()
        self.views = Views(api, settings.namespaces)
        self.lease = Lease(
            api,
            settings.lease_namespace,
            settings.lease_name,
            settings.identity,
            self._leadership_changed,
        )
        recorder = Recorder(api, settings.identity)
        places = Places(api, self.views)
        shared = (api, self.views, lambda: self.lease.leads, recorder, places, self.metrics)
        self.jobs = JobController(*shared)
        self.volumes = VolumeController(*shared)
        self.savepoints = SavepointController(*shared)
        self._controllers: tuple[Controller[Any, Any], ...] = (
            self.jobs,
            self.volumes,
            self.savepoints,
        )
        for one in self._controllers:
            self.metrics.watch_queue(one.queue)
        self.health = Health(
            settings.port,
            self.metrics.registry,
            alive=[*(_moves(one) for one in self._controllers), self._hears],
            ready=[self._synced],
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then end what was begun, and let another lead at once."""
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(self.health.run(), name="health"),
            asyncio.create_task(self.views.run(), name="views"),
        ]
        try:
            tasks.append(asyncio.create_task(self._lead(), name="lead"))
            tasks.append(asyncio.create_task(stop.wait(), name="stop"))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(one.queue.drain(_DRAIN_S) for one in self._controllers))
            await asyncio.gather(self.volumes.close(), self.savepoints.close())
            await self.lease.release()
            for task in done:
                task.result()  # what ended by itself has failed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self) -> None:
        """Compete once everything was read, and work."""
        while not self.views.synced:  # noqa: ASYNC110 - at a start only
            await asyncio.sleep(0.05)
        log.info("in sync: %d jobs", sum(1 for _ in self.views.jobs.items()))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.lease.run())
            for one in self._controllers:
                group.create_task(one.queue.run())

    def _leadership_changed(self, leads: bool) -> None:  # noqa: FBT001 - the one thing that is told
        self.metrics.leads(leads)
        if leads:
            for one in self._controllers:
                one.look_at_all()

    def _hears(self) -> str:
        silent = max((view.silent_s for view in self._readable()), default=0.0)
        return f"the API server is silent for {silent:.0f} s" if silent > SILENT_S else ""

    def _readable(self) -> Sequence[View[object]]:
        return [view for view in self.views.all() if not view.refused]

    def _synced(self) -> str:
        if not self.views.synced:
            return "the cluster has not been read yet"
        return next((view.refused for view in self.views.needed() if view.refused), "")


def _moves(controller: Controller[Any, Any]) -> Check:
    def check() -> str:
        waited = controller.queue.oldest_s
        if waited <= STUCK_S:
            return ""
        return f"{controller.queue.name}: a resource has waited for {waited:.0f} s"

    return check
