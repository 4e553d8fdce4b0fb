"""What the controllers of all kinds share: one look at a resource, from the view to what is done.

The status is written first, under the version that was read, and nothing is done when that is refused.
Not here: any decision. Called by `service.jobs` and `service.stored`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sluicegate_operator.cluster.client import Api
from sluicegate_operator.cluster.events import Recorder
from sluicegate_operator.cluster.informer import Key
from sluicegate_operator.cluster.objects import Resource
from sluicegate_operator.cluster.writing import write_finalizers, write_status
from sluicegate_operator.reconcile.actions import Report
from sluicegate_operator.resources.kinds import Kind
from sluicegate_operator.service.metrics import Metrics
from sluicegate_operator.service.places import Places
from sluicegate_operator.service.views import View, Views
from sluicegate_operator.service.workqueue import WorkQueue

AGAIN_S = 600.0
"""A resource is looked at this often also when nothing happens."""

_LACKING_S = 1.0
"""How soon after we could not see all that we need."""


class NotLeading(Exception):
    """Another operator acts now."""

    expected = True


class Decided(Protocol):
    """What a pass has decided (`reconcile.job.Outcome`, `volumes.passes.Outcome`)."""

    @property
    def status(self) -> Any:  # noqa: ANN401 - of the kind
        """To be written first."""

    @property
    def actions(self) -> Sequence[Any]:
        """To be done then, in order."""

    @property
    def wake_at(self) -> float | None:
        """When to look again."""


Found = TypeVar("Found", bound=Resource[Any, Any])
Made = TypeVar("Made", bound=Decided)


@dataclass
class Controller(ABC, Generic[Found, Made]):
    """Looks at resources of one kind.

    Args:
        api: the API server.
        views: what is kept in view.
        leads: whether we may act now.
        recorder: writes events.
        places: where checkpoints are, and what has to be done there.
        metrics: what is counted.
        clock: seconds since 1970.
    """

    api: Api
    views: Views
    leads: Callable[[], bool]
    recorder: Recorder
    places: Places
    metrics: Metrics
    clock: Callable[[], float] = time.time
    queue: WorkQueue[Key] = field(init=False)

    KIND: ClassVar[Kind]
    FINALIZER: ClassVar[str]
    WORKERS: ClassVar[int]
    SOONEST_S: ClassVar[float]
    """Before it no resource is looked at again, but for a change."""

    def __post_init__(self) -> None:
        """Make the queue; listen to what the resources depend on."""
        self.queue = WorkQueue(self.KIND.name, self.work, workers=self.WORKERS)
        self._listen()

    def look_at_all(self) -> None:
        """Look at every resource: we have begun to lead."""
        for key in self._view:
            self.queue.add(key)

    async def work(self, key: Key) -> None:
        """Look at one resource.

        Raises:
            ApiError: something was refused, or not answered; it is looked at again.
        """
        if not self.leads():
            return
        if self.views.lacking(key[0]):
            # to one that sees no Savepoints, every savepoint on a store is one that nobody names
            self.queue.add_after(key, _LACKING_S)
            return
        found = self._view.get(key)
        if found is None:
            self.queue.forget(key)
            self._forget(key)
            return
        began = time.monotonic()
        outcome = await self._decide(found, self.clock())
        if outcome.status != found.status:
            self._check_leading()
            kind = self.KIND
            self._view.take(
                await write_status(self.api, kind.name, kind.plural, found.meta, outcome.status)
            )
            self._written(found, outcome)
        for action in outcome.actions:
            self._check_leading()
            if isinstance(action, Report):
                await self._report(key, action)
            else:
                await self._perform(found, action)
        self.metrics.reconciled(self.KIND.name, time.monotonic() - began)
        wake = self.clock() + AGAIN_S if outcome.wake_at is None else outcome.wake_at
        self.queue.add_after(key, min(AGAIN_S, max(self.SOONEST_S, wake - self.clock())))

    @property
    @abstractmethod
    def _view(self) -> View[Found]:
        """The resources."""

    @abstractmethod
    def _listen(self) -> None:
        """Listen to what the resources depend on."""

    @abstractmethod
    async def _decide(self, found: Found, now: float) -> Made:
        """Return what to do."""

    @abstractmethod
    async def _perform(self, found: Found, action: Any) -> None:  # noqa: ANN401 - of the kind
        """Do one thing that is no Report."""

    def _forget(self, key: Key) -> None:
        """Let go of a resource that is gone."""

    def _written(self, found: Found, outcome: Made) -> None:
        """Take note of a status that was written."""

    def _check_leading(self) -> None:
        if not self.leads():
            raise NotLeading

    async def _report(self, key: Key, said: Report) -> None:
        found = self._view.get(key)
        if found is not None:
            await self.recorder.record(
                self.KIND.name, found.meta, said.reason, said.message, warning=said.warning
            )

    async def _hold(self, key: Key, *, holds: bool) -> None:
        """Set our finalizer or take it off, under the newest version that is known."""
        found = self._view.get(key)
        if found is not None:
            change = {"add" if holds else "remove": self.FINALIZER}
            self._view.take(
                await write_finalizers(self.api, self.KIND.plural, found.meta, **change)
            )
