"""What is observed of a job: read from the caches, and from the API server where they are too old."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sluicegate_operator.api import labels
from sluicegate_operator.api.streaming_job_status import ACTIVE, REQUESTED
from sluicegate_operator.controllers.caches import Caches, Index
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.decode import DriverPod
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import NODES, Key
from sluicegate_operator.reconcile.observed import Job, Node, Observed, Pod, Progress, Refusal
from sluicegate_operator.reconcile.streaming_job.context import (
    REQUEST_DEADLINE_S,
    RETRY_REQUEST_S,
)

_ABSENT_NODE_S = 30.0
"""How long a node that the API server did not know counts as gone before it is requested again."""


@dataclass
class Observer:
    """Collects what is observed of a job."""

    api: Api
    caches: Caches
    checkpoints: CheckpointResolver
    _absent_nodes: dict[str, float] = field(default_factory=dict)
    _deleted_checkpoints: dict[Key, str] = field(default_factory=dict)
    _refusals: dict[Key, tuple[str, Refusal]] = field(default_factory=dict)
    """The latest refused request for a driver's pod, and the job's uid."""
    _first_seen: dict[str, dict[str, tuple[Progress | None, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By uid: what each pod reports of itself, and when this process first saw that. It has only pods of
    the cache."""

    def __post_init__(self) -> None:
        """Create the indexes."""
        self._pods_by_job = Index(self.caches.pods, lambda pod: pod.job)
        self._pods_by_node = Index(self.caches.pods, lambda pod: pod.node or None)
        self.caches.pods.listeners.append(self._pod_changed)

    def jobs_on(self, node: str) -> set[Key]:
        """Return the jobs whose drivers are on a node."""
        found = map(self.caches.pods.get, self._pods_by_node.keys(node))
        return {pod.job for pod in found if pod is not None}

    def checkpoint_deleted(self, key: Key, uid: str) -> None:
        """Record that a job's checkpoint was deleted."""
        self._deleted_checkpoints[key] = uid

    def pod_refused(self, key: Key, uid: str, refusal: Refusal) -> None:
        """Record that the API server refused a driver's pod."""
        self._refusals[key] = (uid, refusal)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a job that no longer exists."""
        self._refusals.pop(key, None)
        self._deleted_checkpoints.pop(key, None)

    async def observe(self, job: Job, now: float) -> Observed:
        """Return what is observed of a job.

        Raises:
            ApiError: the API server was queried and did not answer.
        """
        key = (job.namespace, job.name)
        as_of = await self._pods_as_of(job, now)
        ready, message = self.checkpoints.readiness(job)
        # without a pause, in which a pod could go whose ages would then be remembered forever
        found = [(self._with_ages(one, now), one.node) for one in self._pods(key, job.uid)]
        return Observed(
            pods=tuple([await self._with_node(pod, node) for pod, node in found]),
            as_of=as_of,
            volume_ready=ready,
            volume_message=message,
            volume_access=self.checkpoints.volume_access(job),
            volume_usable_for_apply=self.checkpoints.usable_for_apply(job),
            checkpoint_exists=False if self._deleted_checkpoints.get(key) == job.uid else None,
            savepoints=self.checkpoints.savepoints(job),
            refusal=self._refusal(key, job),
        )

    def _refusal(self, key: Key, job: Job) -> Refusal | None:
        """Return why a pod was refused, if that answers the latest request for a driver or a standby."""
        uid, refusal = self._refusals.get(key, ("", None))
        if refusal is None or uid != job.uid:
            return None
        status, standby = job.status, job.status.standby
        latest = {(status.attempt, status.driver.requests)}
        if standby is not None:
            latest.add((standby.attempt, standby.requests))
        return refusal if (refusal.attempt, refusal.request) in latest else None

    def _pods(self, key: Key, uid: str) -> Iterable[DriverPod]:
        found = map(self.caches.pods.get, self._pods_by_job.keys(key))
        return [pod for pod in found if pod is not None and pod.owner == uid]

    def held_orphans(self, key: Key, owner: str) -> list[DriverPod]:
        """Return the ending pods of a job's name with our finalizer that belong to another UID."""
        found = map(self.caches.pods.get, self._pods_by_job.keys(key))
        return [
            one
            for one in found
            if one is not None
            and one.owner != owner
            and one.pod.has_finalizer
            and (one.pod.dead or one.pod.terminating)
        ]

    async def _pods_as_of(self, job: Job, now: float) -> float:
        """Return how fresh the pod cache is; re-list if the decision depends on a pod being absent."""
        driver, key = job.status.driver, (job.namespace, job.name)
        as_of = self.caches.pods.listed_at(job.namespace)
        if driver.state not in (REQUESTED, ACTIVE) or driver.request_time is None:
            return as_of
        if any(one.pod.attempt == job.status.attempt for one in self._pods(key, job.uid)):
            return as_of
        if as_of >= driver.request_time + REQUEST_DEADLINE_S or now < driver.request_time:
            return as_of
        if self._refusal(key, job) is not None and now < driver.request_time + RETRY_REQUEST_S:
            return as_of  # nothing that a list could show is decided yet
        return await self.caches.pods.refresh(
            job.namespace, f"{labels.JOB}={job.name}", lambda pod: pod.job == key
        )

    def _with_ages(self, driver_pod: DriverPod, now: float) -> Pod:
        """Return a pod with when it, its node, start, progress and deletion were first seen.

        The clocks of the API server, the node and the driver may differ from ours, and ours may jump. Each
        age is therefore measured with this process's monotonic clock.
        """
        pod = driver_pod.pod
        pod = dataclasses.replace(pod, seen_at=now - self._age(pod.uid, "pod", None))
        if pod.running_at is not None:
            age = self._age(pod.uid, "running", None)
            pod = dataclasses.replace(pod, seen_running_at=now - age)
        if pod.progress is not None:
            age = self._age(pod.uid, "progress", pod.progress)
            progress = dataclasses.replace(pod.progress, at=now - age)
            pod = dataclasses.replace(pod, progress=progress)
        if pod.terminating:
            age = self._age(pod.uid, "terminating", None)
            pod = dataclasses.replace(pod, seen_terminating_at=now - age)
        if driver_pod.node:
            age = self._age(pod.uid, "scheduled", None)
            pod = dataclasses.replace(pod, scheduled_at=now - age)
        return pod

    async def _with_node(self, pod: Pod, name: str) -> Pod:
        return dataclasses.replace(pod, node=await self._node(name)) if name else pod

    def _age(self, uid: str, what: str, report: Progress | None) -> float:
        """Return how many seconds ago this process first saw a report of a pod."""
        known = self._first_seen[uid].get(what)
        if known is None or known[0] != report:
            known = report, time.monotonic()
            self._first_seen[uid][what] = known
        return time.monotonic() - known[1]

    async def _node(self, name: str) -> Node:
        """Return a pod's node. A node that the cache lacks is gone only if the API server confirms it."""
        nodes = self.caches.nodes
        found = nodes.get(("", name))
        if found is not None:
            return found
        if nodes.list_error or not nodes.synced:
            return Node()
        oldest = time.monotonic() - _ABSENT_NODE_S
        self._absent_nodes = {n: since for n, since in self._absent_nodes.items() if since > oldest}
        if name in self._absent_nodes:
            return Node(gone=True)
        try:
            nodes.put(await self.api.request("GET", NODES.path(name=name)))
        except ApiError as error:
            if not error.missing:
                raise
            self._absent_nodes[name] = time.monotonic()
            return Node(gone=True)
        return nodes.get(("", name)) or Node()

    def _pod_changed(self, _key: Key, old: DriverPod | None, new: DriverPod | None) -> None:
        if new is None and old is not None:
            self._first_seen.pop(old.pod.uid, None)
