"""What is seen of a job, put together from the views, and read anew where the views are too old.

Not here: what it means (`reconcile`). Called by `service.jobs`.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sluicegate_operator.cluster.client import Api, ApiError, path_of
from sluicegate_operator.cluster.informer import Key
from sluicegate_operator.cluster.objects import SeenPod
from sluicegate_operator.reconcile.observed import Job, Node, Observed, Pod, Progress, Taken
from sluicegate_operator.reconcile.passes import LANDS_S
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.job_status import ALIVE, ASKED
from sluicegate_operator.service.views import Views

_ABSENT_S = 30.0
"""How long a node that the server did not know is taken for gone without asking again."""


@dataclass
class Observer:
    """Puts together what is seen of a job.

    Args:
        api: the API server.
        views: what is kept in view.
        volume: says whether a job's volume is ready, and why not.
        usable: says whether a driver that only applies what is decided may start on it.
        taken: says how each Savepoint of a namespace is.
    """

    api: Api
    views: Views
    volume: Callable[[Job], tuple[bool, str]]
    usable: Callable[[Job], bool]
    taken: Callable[[Job], dict[str, Taken]]
    _of_job: dict[Key, set[Key]] = field(default_factory=lambda: defaultdict(set))
    _on_node: dict[str, set[Key]] = field(default_factory=lambda: defaultdict(set))
    _absent: dict[str, float] = field(default_factory=dict)
    _emptied: dict[Key, str] = field(default_factory=dict)
    _heard: dict[str, dict[str, tuple[Progress | None, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """What each pod says of itself, and when we first saw that, by uid."""

    def __post_init__(self) -> None:
        """Keep the indexes by listening."""
        self.views.pods.listeners.append(self._pod_changed)

    def jobs_on(self, node: str) -> set[Key]:
        """Return the jobs whose drivers are on a node."""
        found = (self.views.pods.get(key) for key in self._on_node.get(node, ()))
        return {seen.job for seen in found if seen is not None}

    def emptied(self, key: Key, uid: str) -> None:
        """Note that a job's checkpoint is known to be gone."""
        self._emptied[key] = uid

    def forget(self, key: Key) -> None:
        """Let go of a job that is gone."""
        self._emptied.pop(key, None)

    async def observe(self, job: Job, now: float, unreadable: str = "") -> Observed:
        """Return a view of a job; `unreadable`: why its spec, for which there is a stand-in, is not read.

        Raises:
            ApiError: the server had to be asked, and did not answer.
        """
        key = (job.namespace, job.name)
        as_of = await self._fresh_enough(job, now)
        ready, message = self.volume(job)
        return Observed(
            pods=tuple([await self._as_of_now(seen, now) for seen in self._pods(key, job.uid)]),
            as_of=as_of,
            volume_ready=ready,
            volume_message=message,
            volume_usable=self.usable(job),
            unreadable=unreadable,
            checkpoint_exists=False if self._emptied.get(key) == job.uid else None,
            savepoints=self.taken(job),
        )

    def _pods(self, key: Key, uid: str) -> Iterable[SeenPod]:
        found = (self.views.pods.get(pod) for pod in sorted(self._of_job.get(key, ())))
        return [seen for seen in found if seen is not None and seen.owner == uid]

    async def _fresh_enough(self, job: Job, now: float) -> float:
        """Return of when the view of the job's pods is; one that decides by absence is made anew."""
        driver, key = job.status.driver, (job.namespace, job.name)
        as_of = self.views.pods.listed_at(job.namespace)
        if driver.state not in (ASKED, ALIVE) or driver.asked_at is None:
            return as_of
        if any(seen.pod.attempt == job.status.attempt for seen in self._pods(key, job.uid)):
            return as_of
        if as_of >= driver.asked_at + LANDS_S or now < driver.asked_at:
            return as_of
        return await self.views.pods.refresh(
            job.namespace, f"{marks.JOB}={job.name}", lambda _, seen: seen.job == key
        )

    async def _as_of_now(self, seen: SeenPod, now: float) -> Pod:
        """Return a pod with its node, and with its start and progress at the time that we heard of them.

        Its node's clock and the driver's may be others than ours, and ours may jump: how long ago something
        was heard is told by the clock that only goes forward.
        """
        pod = seen.pod
        if pod.running_at is not None:
            age = self._age(pod.uid, "running", None)
            pod = dataclasses.replace(pod, seen_running_at=now - age)
        if pod.progress is not None:
            age = self._age(pod.uid, "progress", pod.progress)
            told = dataclasses.replace(pod.progress, at=now - age)
            pod = dataclasses.replace(pod, progress=told)
        if seen.node:
            pod = dataclasses.replace(pod, node=await self._node(seen.node))
        return pod

    def _age(self, uid: str, what: str, said: Progress | None) -> float:
        """Return for how many seconds we have known what a pod says."""
        known = self._heard[uid].get(what)
        if known is None or known[0] != said:
            known = said, time.monotonic()
            self._heard[uid][what] = known
        return time.monotonic() - known[1]

    async def _node(self, name: str) -> Node:
        """Return a pod's node. One that is not in view is gone only if the server says so."""
        found = self.views.nodes.get(("", name))
        if found is not None:
            return found
        if self.views.nodes.refused or not self.views.nodes.synced:
            return Node()
        asked = self._absent.get(name)
        if asked is not None and time.monotonic() - asked < _ABSENT_S:
            return Node(gone=True)
        try:
            self.views.nodes.take(await self.api.request("GET", path_of("nodes", name=name)))
        except ApiError as error:
            if not error.missing:
                raise
            self._absent[name] = time.monotonic()
            return Node(gone=True)
        self._absent.pop(name, None)
        return self.views.nodes.get(("", name)) or Node()

    def _pod_changed(self, key: Key, old: SeenPod | None, new: SeenPod | None) -> None:
        for seen, gone in ((old, new is None), (new, False)):
            if seen is None:
                continue
            if gone:
                self._of_job[seen.job].discard(key)
                self._on_node[seen.node].discard(key)
            else:
                self._of_job[seen.job].add(key)
                if seen.node:
                    self._on_node[seen.node].add(key)
        if new is None and old is not None:
            self._heard.pop(old.pod.uid, None)
            for index, name in ((self._of_job, old.job), (self._on_node, old.node)):
                if not index[name]:  # type: ignore[index]
                    del index[name]  # type: ignore[arg-type]
