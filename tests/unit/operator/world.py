"""A cluster without a cluster: an API server's rules, kubelets, a user, and operators that err.

An operator reads views that are old, each by itself (the job's, the pods'); dies between any two
writes; leaves requests behind that land later, though within their deadline. A driver's process is
told from its pod: on a silent node it may live unseen. Not here: choosing what happens
(`test_simulation`). The laws are `World.check`.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from sluicegate_operator.reconcile import actions as acts
from sluicegate_operator.reconcile.job import reconcile
from sluicegate_operator.reconcile.observed import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    Job,
    Node,
    Observed,
    Pod,
    Progress,
)
from sluicegate_operator.reconcile.passes import LANDS_S
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import FINISH
from sluicegate_operator.resources.parsing import render

from .made import NOW, job
from .storage import LawBroken, Run, Storage

BAD = "jobs:bad"
"""An image with which no driver makes an epoch."""

LONG = "é" * 2048
"""A termination message as long as the kubelet takes."""

STATUS_BYTES = 16 << 10

DEADLINE_S = LANDS_S - 5
"""Of a request: whoever sends it gives it up well before others rely on that."""


@dataclass(frozen=True)
class Snapshot:
    """What a view may show: all pods, as they were until then."""

    as_of: float
    pods: tuple[Pod, ...]


@dataclass
class World:
    """The truth, and what was true before.

    Args:
        resource: the job with its newest status.
        version: its resourceVersion.
        resources: each version of it.
        views: the pods after each change.
        processes: uid of each pod whose process lives.
        late: creations that are on their way, and when they are given up.
        specs: what drivers were made of, by digest.
        runs: uid of a batch's pod -> its run.
        measured: the version of which the size is known.
        guarded: whether a status write under an old version is refused.
    """

    resource: Job
    now: float = NOW
    version: int = 0
    resources: list[Job] = field(default_factory=list)
    views: list[Snapshot] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    processes: set[str] = field(default_factory=set)
    late: list[tuple[float, acts.CreateDriver]] = field(default_factory=list)
    storage: Storage = field(default_factory=Storage)
    specs: dict[str, StreamingJobSpec] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    made: int = 0
    writes: int = 0
    guarded: bool = True
    told: bool = False
    measured: int = -1

    def __post_init__(self) -> None:
        """Begin with one view."""
        self.resources.append(self.resource)
        self._seen()

    # --- what an operator does ---------------------------------------------------------------

    def operate(
        self,
        *,
        job_age: int = 0,
        view_age: int = 0,
        taken_age: int = 0,
        acts_done: int = 99,
        late: bool = False,
    ) -> tuple[bool, tuple[acts.Action, ...]]:
        """Let an operator pass once.

        Args:
            job_age: how many versions old its view of the job is.
            view_age: how many changes old its view of the pods is.
            taken_age: how many changes old its view of the savepoints is.
            acts_done: it dies after so many actions.
            late: its creations are still on their way when it dies.

        Returns:
            Whether the status was written, and what was to be done.
        """
        version = max(0, self.version - job_age)
        read = self.resources[version]
        seen = self.views[max(0, len(self.views) - 1 - view_age)]
        taken = self.storage.views[max(0, len(self.storage.views) - 1 - taken_age)]
        outcome = reconcile(read, Observed(seen.pods, seen.as_of, savepoints=taken), self.now)
        changed = outcome.status != read.status
        if changed:
            if self.guarded and version != self.version:
                return False, ()
            self.writes += 1
            self.storage.check_moves(self.resource.status, outcome.status)
            self.change(status=outcome.status)
        for action in outcome.actions[:acts_done]:
            if isinstance(action, acts.CreateDriver) and late:
                self.late.append((self.now + DEADLINE_S, action))
                break
            self.perform(action)
        self._seen()
        return changed, outcome.actions

    def perform(self, action: acts.Action) -> None:
        """Do what the API server would do."""
        match action:
            case acts.AddFinalizer():
                self.change(held=True)
            case acts.RemoveFinalizer():
                if self.processes:
                    raise LawBroken(f"let go beside a driver that lives: {self.processes}")
                self.change(held=False)
            case acts.CreateDriver():
                self._create(action)
            case acts.StopDriver(uid=uid):
                self._update(uid, terminating=True)
            case acts.ReleasePod(uid=uid):
                self._release(uid)
            case acts.DropPod(uid=uid):
                self._update(uid, terminating=True)
                self._release(uid)
            case acts.TakeSavepoint(name=name, attempt=attempt):
                number = self.resource.status.checkpoint_number
                if attempt == self.resource.status.attempt:
                    self.storage.take(name, attempt, number)
            case _:
                pass  # events; this job deletes no checkpoint

    def change(self, **changes: object) -> None:
        """Write the resource; its spec's generation goes up with the spec."""
        self.resource = dataclasses.replace(self.resource, **changes)  # type: ignore[arg-type]
        self.version += 1
        self.resources.append(self.resource)

    def land(self, index: int, *, lost: bool) -> None:
        """Let a request that was on its way arrive, or be lost."""
        _, action = self.late.pop(index)
        if not lost:
            self._create(action)
        self._seen()

    def _create(self, action: acts.CreateDriver) -> None:
        name = f"clicks-{action.attempt}-driver"
        if name in self.pods:
            return  # 409, which is success
        if action.spec.running_hash() != action.spec_hash:
            raise LawBroken(f"attempt {action.attempt} is made of another spec than it says")
        self.specs[action.spec_hash] = action.spec
        self.made += 1
        status = self.resource.status
        if status.last_schedule_time is not None and action.attempt == status.attempt:
            run = (status.last_schedule_time, status.handled_nonce)
            if run in self.storage.done and action.purpose != FINISH:
                raise LawBroken(f"a run that has succeeded is run again: {run}")
            self.runs[f"u-{self.made}"] = run
        self.pods[name] = Pod(
            name=name,
            uid=f"u-{self.made}",
            attempt=action.attempt,
            purpose=action.purpose,
            spec_hash=action.spec_hash,
            checkpoint_number=action.checkpoint_number,
            restore_from=action.restore_from,
            created_at=self.now,
        )

    def _release(self, uid: str) -> None:
        self._update(uid, held=False)
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if pod.held or not (pod.uid == uid and pod.terminating)
        }

    def _update(self, uid: str, **changes: object) -> None:
        for name, pod in self.pods.items():
            if pod.uid == uid:
                self.pods[name] = dataclasses.replace(pod, **changes)  # type: ignore[arg-type]

    # --- what happens ------------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        """Let time go by; requests that reach their deadline are lost."""
        self.now += seconds
        self.late = [(until, action) for until, action in self.late if until > self.now]
        self._seen()

    def live_pods(self) -> list[Pod]:
        """Return pods that kubelets may still do something about."""
        return [pod for pod in self.pods.values() if not pod.dead]

    def bind(self, pod: Pod) -> None:
        """Let a node take a pod; the API server refuses that for one that is being deleted."""
        if pod.node is None and not pod.terminating:
            self._update(pod.uid, node=Node())
        self._seen()

    def run(self, pod: Pod) -> None:
        """Let a kubelet start a pod that was bound, or end one that was deleted before it began."""
        if pod.node is None or pod.node.silent_since is not None or pod.phase != PENDING:
            return
        if pod.terminating:
            self._update(pod.uid, phase=FAILED, ended_at=self.now)
        else:
            self.storage.driver_begins(pod)
            self.processes.add(pod.uid)
            self._update(pod.uid, phase=RUNNING, running_at=self.now)
        self._seen()

    def progress(self, pod: Pod) -> None:
        """Let a driver that can be heard report an epoch, or that its checkpoint is sealed."""
        if pod.uid not in self.processes or pod.node is None:
            return
        heard = pod.node.silent_since is None
        if pod.checkpoint_number in self.storage.sealed and pod.purpose != FINISH:
            if heard and not pod.terminating:
                self.storage.driver_told_sealed(pod)
            self.end(pod, 65, "Sealed: moved")
        elif self.bad(pod):
            self.end(pod, 1)
        elif heard:
            epoch = 0 if pod.progress is None else (pod.progress.epoch or 0) + 1
            self._update(pod.uid, progress=Progress(self.now, epoch))
        self._seen()

    def bad(self, pod: Pod) -> bool:
        """Say whether a driver's spec is one that never makes an epoch."""
        return self.specs[pod.spec_hash].image == BAD

    def end(self, pod: Pod, code: int, message: str = LONG) -> None:
        """Let a process end; its kubelet says so, if it can be heard."""
        if pod.uid not in self.processes:
            return
        self.processes.discard(pod.uid)
        if pod.node is not None and pod.node.silent_since is None:
            self._over(pod, code, message)
        self._seen()

    def _over(self, pod: Pod, code: int, message: str = "") -> None:
        phase = SUCCEEDED if code == 0 else FAILED
        self._update(pod.uid, phase=phase, exit_code=code, ended_at=self.now, message=message)
        # the driver of a batch that was asked to stop exits 0 too
        if code == 0 and pod.purpose != FINISH and not pod.terminating and pod.uid in self.runs:
            self.storage.done.add(self.runs[pod.uid])

    def delete_pod(self, pod: Pod) -> None:
        """Let a person delete a pod, by force or not: our finalizer keeps the object."""
        self._update(pod.uid, terminating=True)
        self._seen()

    def silence(self, pod: Pod) -> None:
        """Let a pod's node be heard no more; its processes go on."""
        if pod.node is not None and pod.node.silent_since is None:
            self._update(pod.uid, node=Node(silent_since=self.now))
        self._seen()

    def return_node(self, pod: Pod) -> None:
        """Let a silent node be heard again; its kubelet says what it knows."""
        if pod.node is None or pod.node.silent_since is None or pod.node.gone:
            return
        self._update(pod.uid, node=Node())
        if pod.phase == RUNNING and pod.uid not in self.processes:
            self._over(pod, 137)
        self._seen()

    def remove_node(self, pod: Pod) -> None:
        """Let a machine be destroyed and its Node object deleted."""
        if pod.node is not None:
            self.processes.discard(pod.uid)
            self._update(pod.uid, node=Node(silent_since=self.now, gone=True))
        self._seen()

    def ends_by_itself(self, pod: Pod) -> bool:
        """Say whether a driver is a batch's, and no bad one's."""
        return self.specs[pod.spec_hash].finite and not self.bad(pod)

    def take_savepoints(self) -> None:
        """Let all savepoints be taken that stop no later driver than their own."""
        for name, one in self.storage.savepoints.items():
            alive = [p for p in self.live_pods() if p.uid in self.processes]
            for pod in alive:
                if pod.attempt == one.attempt and one.taken.phase == "Pending":
                    self.end(pod, 0)
            if all(p.attempt == one.attempt for p in alive):
                self.storage.seal(name)
            self.storage.ready(name)

    def _seen(self) -> None:
        self.views.append(Snapshot(self.now, tuple(self.pods.values())))

    # --- the laws ----------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if a law is broken.

        Raises:
            LawBroken: two drivers may write at a time, an attempt's number went back, or the status
                is too large.
        """
        can_run = {
            pod.uid
            for pod in self.pods.values()
            if not pod.dead and (pod.phase == PENDING or pod.uid in self.processes)
        }
        able = sorted(can_run | self.processes)
        if len(able) > 1 and not self.told:
            raise LawBroken(f"two drivers of a stateful job: {able}")
        attempts = [one.status.attempt for one in self.resources[-2:]]
        if attempts != sorted(attempts):
            raise LawBroken(f"the attempt went back: {attempts}")
        if self.measured == self.version:
            return
        self.measured = self.version
        size = len(json.dumps(render(self.resource.status), ensure_ascii=False).encode())
        if size > STATUS_BYTES:
            raise LawBroken(f"the status has {size} bytes")


def world_of(wanted: Job | None = None, *, guarded: bool = True) -> World:
    """Return a world with one new job, of which no driver has begun."""
    return World(wanted or job(held=False), guarded=guarded)


def settle(world: World, *, passes: int = 400) -> None:
    """Let the world be quiet: all is heard and seen, drivers run, and operators do not err.

    Raises:
        LawBroken: it does not come to rest, or a pass at rest writes.
    """
    world.late.clear()
    quiet = 0
    for _ in range(passes):
        for pod in tuple(world.pods.values()):
            world.return_node(pod)
        for pod in world.live_pods():
            world.bind(pod)
        for pod in world.live_pods():
            world.run(pod)
        for pod in world.live_pods():
            if pod.terminating or pod.purpose == FINISH or world.ends_by_itself(pod):
                world.end(pod, 0)
            else:
                world.progress(pod)
        world.take_savepoints()
        world.check()
        wrote, done = world.operate()
        world.check()
        quiet = 0 if wrote or done else quiet + 1
        if quiet >= 2 and not _waits(world):
            return
        world.tick(0 if wrote or done else 7)
    raise LawBroken(f"no rest: {world.resource.status}, {world.pods}")


def _waits(world: World) -> bool:
    """Say whether something is still to come: a delay, a driver on its way."""
    status = world.resource.status
    if world.resource.deleted:
        return world.resource.held
    if status.phase == "Running" and any(world.bad(pod) for pod in world.live_pods()):
        return True
    return status.phase not in ("Running", "Suspended", "Failed", "Waiting")
