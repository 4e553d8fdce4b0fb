"""A simulated cluster: the rules of an API server, kubelets, a user, and operators that fail.

An operator reads caches of independent ages (of the job, the pods, the savepoints), crashes between any
two writes, and may leave requests in flight that arrive within their deadline. A driver's process is
separate from its pod: on a lost node it may be alive unobserved. `test_simulation` chooses what happens,
and `World.check` asserts the invariants.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from sluicegate.errors import EpochUnfinished
from sluicegate_operator.api.codec import render
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import APPLY_ONLY
from sluicegate_operator.reconcile import actions
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
from sluicegate_operator.reconcile.streaming_job.context import REQUEST_DEADLINE_S
from sluicegate_operator.reconcile.streaming_job.reconciler import reconcile_job
from tests.robustness.model.operator.storage import InvariantViolated, Run, Storage
from tests.unit.operator.builders import NOW, job

BAD_IMAGE = "jobs:bad"
"""An image whose drivers never complete an epoch."""

LONG_MESSAGE = "é" * 2048
"""The longest termination message that a kubelet accepts."""

STATUS_BYTES = 16 << 10

DEADLINE_S = REQUEST_DEADLINE_S - 5
"""Timeout of a request: it ends well before others rely on that."""


@dataclass(frozen=True)
class PodSnapshot:
    """A state of the pod cache: all pods as of a time."""

    as_of: float
    pods: tuple[Pod, ...]


@dataclass
class World:
    """The present state of the cluster and its history.

    Args:
        resource: the job with its newest status.
        version: its resourceVersion.
        resource_history: the job at each version.
        pod_history: the pods after each change.
        processes: uids of pods whose process is alive.
        waiting: those of standbys that have not learned of a promotion.
        in_flight: requests to create a pod that have not arrived, and their deadlines.
        specs: the specs that drivers were created with, by hash.
        runs: uid of a batch's pod -> its run.
        pods_created: number of pods that were created.
        writes: number of status writes.
        rejects_conflicts: whether a status write with an old version is refused.
        may_have_two_drivers: the job is stateless, so a second driver violates nothing.
        measured_version: the version whose size was checked last.
    """

    resource: Job
    now: float = NOW
    version: int = 0
    resource_history: list[Job] = field(default_factory=list)
    pod_history: list[PodSnapshot] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    processes: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    in_flight: list[tuple[float, actions.CreateDriver]] = field(default_factory=list)
    storage: Storage = field(default_factory=Storage)
    specs: dict[str, StreamingJobSpec] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    pods_created: int = 0
    writes: int = 0
    rejects_conflicts: bool = True
    may_have_two_drivers: bool = False
    measured_version: int = -1

    def __post_init__(self) -> None:
        """Record the initial state."""
        self.resource_history.append(self.resource)
        self._record()

    # --- the operator ---------------------------------------------------------------

    def operate(
        self,
        *,
        job_age: int = 0,
        pods_age: int = 0,
        savepoints_age: int = 0,
        actions_done: int = 99,
        in_flight: bool = False,
    ) -> tuple[bool, tuple[actions.JobAction, ...]]:
        """Run one reconciliation of an operator.

        Args:
            job_age: age of its job cache, in versions.
            pods_age: age of its pod cache, in changes.
            savepoints_age: age of its savepoint cache, in changes.
            actions_done: after how many actions it crashes.
            in_flight: whether it crashes before its request to create a pod has arrived.

        Returns:
            Whether the status was written, and the actions that were decided.
        """
        version = max(0, self.version - job_age)
        read = self.resource_history[version]
        observed = self.pod_history[max(0, len(self.pod_history) - 1 - pods_age)]
        state = self.storage.history[max(0, len(self.storage.history) - 1 - savepoints_age)]
        outcome = reconcile_job(
            read, Observed(observed.pods, observed.as_of, savepoints=state), self.now
        )
        changed = outcome.status != read.status
        if changed:
            if self.rejects_conflicts and version != self.version:
                return False, ()
            self.writes += 1
            self.storage.check_checkpoint_change(
                self.resource.status, outcome.status, skip_apply=self.resource.skip_apply
            )
            self.change(status=outcome.status)
        for action in outcome.actions[:actions_done]:
            if isinstance(action, actions.CreateDriver) and in_flight:
                self.in_flight.append((self.now + DEADLINE_S, action))
                break
            self.perform(action)
        self._record()
        return changed, outcome.actions

    def perform(self, action: actions.JobAction) -> None:
        """Do what the API server would do."""
        match action:
            case actions.AddFinalizer():
                self.change(has_finalizer=True)
            case actions.RemoveFinalizer():
                self.storage.check_release(self.resource, self.processes)
                self.change(has_finalizer=False)
            case actions.CreateDriver():
                self._create(action)
            case actions.PromoteStandby(uid=uid):
                self._update_pod(uid, standby=False, promoted=True)
                self._notify_standby(uid)
            case actions.StopDriver(uid=uid):
                self._update_pod(uid, terminating=True)
            case actions.RemovePodFinalizer(uid=uid):
                self._release(uid)
            case actions.DeletePod(uid=uid):
                self._update_pod(uid, terminating=True)
                self._release(uid)
            case actions.CreateSavepoint(name=name, attempt=attempt):
                number = self.resource.status.checkpoint.number
                if attempt == self.resource.status.attempt:
                    self.storage.take(name, attempt, number)
            case _:
                pass  # an event; this job deletes no checkpoint

    def change(self, **changes: object) -> None:
        """Write a new version of the resource."""
        self.resource = dataclasses.replace(self.resource, **changes)  # type: ignore[arg-type]
        self.version += 1
        self.resource_history.append(self.resource)

    def arrive(self, index: int, *, lost: bool) -> None:
        """Deliver or lose a request in flight."""
        _, action = self.in_flight.pop(index)
        if not lost:
            self._create(action)
        self._record()

    def _create(self, action: actions.CreateDriver) -> None:
        name = f"clicks-{action.attempt}-driver"
        if name in self.pods:
            return  # 409 Conflict, which counts as success
        if action.spec.running_hash() != action.spec_hash:
            raise InvariantViolated(f"attempt {action.attempt} has another spec than its hash says")
        self.specs[action.spec_hash] = action.spec
        self.pods_created += 1
        status = self.resource.status
        if status.last_schedule_time is not None and action.attempt == status.attempt:
            run = (status.last_schedule_time, status.observed_restart_nonce)
            if run in self.storage.finished_runs and action.mode != APPLY_ONLY:
                raise InvariantViolated(f"a successful run is repeated: {run}")
            self.runs[f"u-{self.pods_created}"] = run
        self.pods[name] = Pod(
            name=name,
            uid=f"u-{self.pods_created}",
            attempt=action.attempt,
            mode=action.mode,
            spec_hash=action.spec_hash,
            checkpoint_number=action.checkpoint_number,
            restore_from=action.restore_from,
            seen_at=self.now,
            standby=action.standby,
        )

    def _notify_standby(self, uid: str) -> None:
        """Let a standby go on that can see the promotion of its pod."""
        pod = next((one for one in self.pods.values() if one.uid == uid), None)
        if pod is None or uid not in self.waiting or pod.standby or pod.node is None:
            return
        if pod.node.unresponsive_since is None:
            self.waiting.discard(uid)
            self._begin(pod)

    def _begin(self, pod: Pod) -> None:
        """Begin what a driver does: it may decide an epoch at any time."""
        self.storage.driver_starts(pod)
        if pod.mode != APPLY_ONLY and not self.completes_no_epoch(pod):
            self.storage.unapplied.add(pod.checkpoint_number)

    def _release(self, uid: str) -> None:
        self._update_pod(uid, has_finalizer=False)
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if pod.has_finalizer or not (pod.uid == uid and pod.terminating)
        }

    def _update_pod(self, uid: str, **changes: object) -> None:
        for name, pod in self.pods.items():
            if pod.uid == uid:
                self.pods[name] = dataclasses.replace(pod, **changes)  # type: ignore[arg-type]

    # --- the cluster ------------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        """Advance the clock; requests that reach their deadline are lost."""
        self.now += seconds
        self.in_flight = [(until, action) for until, action in self.in_flight if until > self.now]
        self._record()

    def live_pods(self) -> list[Pod]:
        """Return the pods that a kubelet may still change."""
        return [pod for pod in self.pods.values() if not pod.dead]

    def bind(self, pod: Pod) -> None:
        """Bind a pod to a node; the API server refuses that for a pod that is being deleted."""
        if pod.node is None and not pod.terminating:
            self._update_pod(pod.uid, node=Node())
        self._record()

    def run(self, pod: Pod) -> None:
        """Start a bound pod as its kubelet does, or end one that was deleted before its start."""
        if pod.node is None or pod.node.unresponsive_since is not None or pod.phase != PENDING:
            return
        if pod.terminating:
            self._update_pod(pod.uid, phase=FAILED, ended_at=self.now)
        else:
            self.processes.add(pod.uid)
            if pod.standby:
                self.waiting.add(pod.uid)
            else:
                self._begin(pod)
            self._update_pod(pod.uid, phase=RUNNING, running_at=self.now)
        self._record()

    def progress(self, pod: Pod) -> None:
        """Advance a driver: it reports an epoch if its node responds, or that its checkpoint is sealed."""
        if pod.uid not in self.processes or pod.node is None:
            return
        node_responds = pod.node.unresponsive_since is None
        if pod.uid in self.waiting:
            if node_responds:
                self._update_pod(pod.uid, standby_ready=True)
        elif pod.checkpoint_number in self.storage.sealed and pod.mode != APPLY_ONLY:
            if node_responds and not pod.terminating:
                self.storage.driver_found_seal(pod)
            self.end(pod, 65, "Sealed: moved")
        elif self.completes_no_epoch(pod):
            self.end(pod, 1)
        elif node_responds:
            epoch = 0 if pod.progress is None else (pod.progress.epoch or 0) + 1
            self._update_pod(pod.uid, progress=Progress(self.now, epoch))
        self._record()

    def completes_no_epoch(self, pod: Pod) -> bool:
        """Return whether a driver's spec never completes an epoch."""
        return self.specs[pod.spec_hash].image == BAD_IMAGE

    def end(self, pod: Pod, code: int, message: str = LONG_MESSAGE) -> None:
        """End a process; its kubelet reports that if the node responds."""
        if pod.uid not in self.processes:
            return
        self.processes.discard(pod.uid)
        if pod.uid in self.waiting:
            self.waiting.discard(pod.uid)
            if pod.checkpoint_number in self.storage.unapplied:
                code = code or EpochUnfinished.exit_code  # 0 means that everything is applied
        else:
            self.storage.driver_ended(pod, code, message)
        if pod.node is not None and pod.node.unresponsive_since is None:
            self._report_end(pod, code, message)
        self._record()

    def _report_end(self, pod: Pod, code: int, message: str = "") -> None:
        phase = SUCCEEDED if code == 0 else FAILED
        self._update_pod(pod.uid, phase=phase, exit_code=code, ended_at=self.now, message=message)
        # a batch driver that received a stop request exits with 0 too
        if code == 0 and pod.mode != APPLY_ONLY and not pod.terminating and pod.uid in self.runs:
            self.storage.finished_runs.add(self.runs[pod.uid])

    def delete_pod(self, pod: Pod) -> None:
        """Delete a pod as a user does, by force or not; the finalizer retains the object."""
        self._update_pod(pod.uid, terminating=True)
        self._record()

    def lose_node(self, pod: Pod) -> None:
        """Make a pod's node unresponsive; its processes continue."""
        if pod.node is not None and pod.node.unresponsive_since is None:
            self._update_pod(pod.uid, node=Node(unresponsive_since=self.now))
        self._record()

    def return_node(self, pod: Pod) -> None:
        """Reconnect a lost node; its kubelet reports the state of the pod."""
        if pod.node is None or pod.node.unresponsive_since is None or pod.node.gone:
            return
        self._update_pod(pod.uid, node=Node())
        self._notify_standby(pod.uid)
        if pod.phase == RUNNING and pod.uid not in self.processes:
            self._report_end(pod, 137)
        self._record()

    def remove_node(self, pod: Pod) -> None:
        """Destroy a machine and delete its Node object."""
        if pod.node is not None:
            self.processes.discard(pod.uid)
            self.waiting.discard(pod.uid)
            self._update_pod(pod.uid, node=Node(unresponsive_since=self.now, gone=True))
        self._record()

    def ends_by_itself(self, pod: Pod) -> bool:
        """Return whether a driver belongs to a batch and can complete its epoch."""
        return self.specs[pod.spec_hash].finite and not self.completes_no_epoch(pod)

    def take_savepoints(self) -> None:
        """Take all savepoints that stop no later driver than their own."""
        for name, savepoint in self.storage.savepoints.items():
            alive = [p for p in self.live_pods() if p.uid in self.processes - self.waiting]
            for pod in alive:
                if pod.attempt == savepoint.attempt and savepoint.state.phase == "Pending":
                    self.end(pod, 0)
            if all(p.attempt == savepoint.attempt for p in alive):
                self.storage.seal(name)
            self.storage.ready(name)

    def _record(self) -> None:
        self.pod_history.append(PodSnapshot(self.now, tuple(self.pods.values())))

    # --- invariants ----------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants.

        Raises:
            InvariantViolated: two drivers may write at a time, the attempt's number decreased, or the
                status is too large.
        """
        can_run = {
            pod.uid
            for pod in self.pods.values()
            if not pod.dead and (pod.phase == PENDING or pod.uid in self.processes)
        }
        standbys = {pod.uid for pod in self.pods.values() if pod.standby}
        able_to_write = sorted((can_run | self.processes) - standbys)
        if len(able_to_write) > 1 and not self.may_have_two_drivers:
            raise InvariantViolated(f"two drivers of a stateful job: {able_to_write}")
        attempts = [resource.status.attempt for resource in self.resource_history[-2:]]
        if attempts != sorted(attempts):
            raise InvariantViolated(f"the attempt number decreased: {attempts}")
        if self.measured_version == self.version:
            return
        self.measured_version = self.version
        size = len(json.dumps(render(self.resource.status), ensure_ascii=False).encode())
        if size > STATUS_BYTES:
            raise InvariantViolated(f"the status has {size} bytes")


def new_world(resource: Job | None = None, *, rejects_conflicts: bool = True) -> World:
    """Return a world with one new job that has had no driver."""
    return World(resource or job(has_finalizer=False), rejects_conflicts=rejects_conflicts)


def run_to_rest(world: World, *, passes: int = 400) -> None:
    """Run the world without faults until nothing changes any more.

    Raises:
        InvariantViolated: the world does not come to rest, or is not at rest.
    """
    world.in_flight.clear()
    quiet_passes = 0
    for _ in range(passes):
        for pod in tuple(world.pods.values()):
            world.return_node(pod)
        for pod in world.live_pods():
            world.bind(pod)
        for pod in world.live_pods():
            world.run(pod)
        for pod in world.live_pods():
            if pod.terminating or pod.mode == APPLY_ONLY or world.ends_by_itself(pod):
                world.end(pod, 0)
            else:
                world.progress(pod)
        world.take_savepoints()
        world.check()
        status_written, decided_actions = world.operate()
        world.check()
        quiet_passes = 0 if status_written or decided_actions else quiet_passes + 1
        if quiet_passes >= 2 and not _is_pending(world):
            return
        world.tick(0 if status_written or decided_actions else 7)
    raise InvariantViolated(f"does not come to rest: {world.resource.status}, {world.pods}")


def _is_pending(world: World) -> bool:
    """Return whether something is still pending, such as the end of a delay."""
    status = world.resource.status
    if world.resource.deleted:
        return world.resource.has_finalizer
    if status.phase == "Running" and status.standby is not None and status.standby.next_start_time:
        return True
    if status.phase == "Running" and any(
        world.completes_no_epoch(pod) for pod in world.live_pods()
    ):
        return True
    return status.phase not in ("Running", "Suspended", "Failed", "Waiting")
