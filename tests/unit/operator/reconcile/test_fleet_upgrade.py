"""Many jobs that are upgraded at once by savepoint: each one keeps its savepoint.

The operator takes two savepoints at a time, so those of the last jobs begin long after the deadline that
each savepoint has.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass, field

from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.reconcile.actions import CreateDriver, CreateSavepoint, ForgetTask, RunTask
from sluicegate_operator.reconcile.observed import Job, Observed, Pod, Savepoint, SavepointObserved
from sluicegate_operator.reconcile.readiness import savepoint_state
from sluicegate_operator.reconcile.savepoint.reconciler import reconcile_savepoint
from sluicegate_operator.reconcile.storage_tasks import (
    Done,
    Running,
    SavepointTaken,
    TakeSavepoint,
    Task,
    TaskState,
)
from sluicegate_operator.reconcile.streaming_job.reconciler import reconcile_job
from tests.unit.operator import savepoint_builders
from tests.unit.operator.builders import NOW, alive, job, pod, spec

JOBS, SLOTS, SECONDS_EACH, STEP_S = 200, 2, 45.0, 15.0
UPGRADED = spec(image="jobs:2", upgrade_mode="Savepoint", savepoint_timeout_s=600.0)


@dataclass
class Upgrade:
    """One job, its driver's pod, its Savepoint and the tasks of that."""

    job: Job
    pod: Pod | None
    savepoint: Savepoint | None = None
    tasks: dict[Task, TaskState] = field(default_factory=dict)
    requeue_at: float = NOW
    upgraded: bool = False


class Fleet:
    """All jobs, and the queue of savepoints; time advances in steps."""

    def __init__(self) -> None:
        self.now = NOW
        self.upgrades = [
            Upgrade(dataclasses.replace(job(UPGRADED, alive()), uid=f"{n:08d}"), pod())
            for n in range(JOBS)
        ]
        self.queue: deque[tuple[Upgrade, TakeSavepoint]] = deque()
        self.running: dict[int, tuple[float, Upgrade, TakeSavepoint]] = {}
        self.volume = savepoint_builders.store()

    def run_task_queue(self) -> set[int]:
        """End and start savepoints; return the jobs whose savepoint has changed."""
        changed = set()
        for slot, (until, one, task) in list(self.running.items()):
            if self.now >= until:
                result = SavepointTaken(f"{task.folder}/x", 41, self.now, sealed=True)
                one.tasks[task] = Done(self.now, result)
                assert one.pod is not None
                one.pod = dataclasses.replace(
                    one.pod, phase="Succeeded", exit_code=0, ended_at=self.now
                )
                del self.running[slot]
                changed.add(id(one))
        for slot in range(SLOTS):
            if slot not in self.running and self.queue:
                one, task = self.queue.popleft()
                one.tasks[task] = Running(NOW, started_at=self.now)
                self.running[slot] = (self.now + SECONDS_EACH, one, task)
                changed.add(id(one))
        return changed

    def reconcile(self, one: Upgrade) -> None:
        """Reconcile a job and its Savepoint, until neither changes."""
        for _ in range(3):
            self.reconcile_savepoint(one)
            self.reconcile_job(one)

    def reconcile_job(self, one: Upgrade) -> None:
        found = one.savepoint
        states = {} if found is None else {found.name: savepoint_state(found.status)}
        pods = () if one.pod is None else (one.pod,)
        outcome = reconcile_job(one.job, Observed(pods, self.now, savepoints=states), self.now)
        one.job = dataclasses.replace(one.job, status=outcome.status)
        one.requeue_at = outcome.requeue_at or self.now + 600
        for action in outcome.actions:
            match action:
                case CreateSavepoint(name=name):
                    new = SavepointSpec(job=one.job.name, stop=True)
                    one.savepoint = savepoint_builders.savepoint(
                        new,
                        SavepointStatus(),
                        name=name,
                        uid=f"s-{one.job.uid}",
                        attempt=1,
                        job_uid=one.job.uid,
                    )
                case CreateDriver():
                    one.upgraded = True

    def reconcile_savepoint(self, one: Upgrade) -> None:
        if one.savepoint is None:
            return
        view = SavepointObserved(one.job, {"store": self.volume}, tasks=one.tasks)
        outcome = reconcile_savepoint(one.savepoint, view, self.now)
        one.savepoint = dataclasses.replace(one.savepoint, status=outcome.status)
        for action in outcome.actions:
            if isinstance(action, RunTask) and isinstance(action.task, TakeSavepoint):
                if action.task not in one.tasks:
                    one.tasks[action.task] = Running(self.now)
                    self.queue.append((one, action.task))
            elif isinstance(action, ForgetTask):
                one.tasks = {task: s for task, s in one.tasks.items() if task != action.task}


def test_each_of_200_jobs_keeps_its_savepoint() -> None:
    fleet = Fleet()
    while not all(one.upgraded for one in fleet.upgrades):
        changed = fleet.run_task_queue()
        for one in fleet.upgrades:
            if not one.upgraded and (id(one) in changed or one.requeue_at <= fleet.now):
                fleet.reconcile(one)
        fleet.now += STEP_S
        assert fleet.now < NOW + 2 * JOBS * SECONDS_EACH
    assert fleet.now - NOW > 7 * UPGRADED.savepoint_timeout_s
    for one in fleet.upgrades:
        assert one.savepoint is not None
        assert one.job.status.checkpoint.restored_from == one.savepoint.name
