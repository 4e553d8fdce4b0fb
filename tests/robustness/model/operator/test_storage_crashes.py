"""An operator that crashes at any write of a Savepoint or a CheckpointVolume loses and leaves no data.

A crash also kills the storage tasks that run, before or after their work is done; and the user may
delete the resource at any time.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluicegate_operator.api.checkpoint_volume import DELETE
from sluicegate_operator.reconcile.actions import (
    AddFinalizer,
    ForgetTask,
    RemoveFinalizer,
    RunTask,
    StorageAction,
)
from sluicegate_operator.reconcile.checkpoint_volume import reconcile_volume
from sluicegate_operator.reconcile.context import Outcome
from sluicegate_operator.reconcile.observed import Volume
from sluicegate_operator.reconcile.savepoint.reconciler import reconcile_savepoint
from sluicegate_operator.reconcile.storage_tasks import (
    CheckVolume,
    Delete,
    Deleted,
    Dispose,
    Disposed,
    Done,
    Measure,
    Measured,
    Prune,
    Pruned,
    Result,
    SavepointTaken,
    TakeSavepoint,
    Task,
    TaskState,
    VolumeChecked,
)
from tests.unit.operator import savepoint_builders, volume_builders
from tests.unit.operator.builders import NOW

PASSES = 30
"""More reconciliations than any scenario needs; a schedule has five savepoints meanwhile."""

Reconcile = Callable[["World"], Outcome[Any, StorageAction]]


class CrashedError(Exception):
    """The operator has crashed."""


@dataclass
class World:
    """One resource, the object store, and operators that crash once.

    Args:
        resource: the resource, as the API server has it; None: it is gone.
        crash_at: number of the write before which the operator crashes; -1: none.
        work_done: whether tasks that run at the crash have done their work.
        store: addresses that have data.
        step_s: time between reconciliations in seconds.
        savepoints: folders of all savepoints that were taken.
    """

    reconcile: Reconcile
    resource: Any
    crash_at: int = -1
    work_done: bool = False
    now: float = NOW
    step_s: float = 40.0
    savepoints: set[str] = field(default_factory=set)
    store: set[str] = field(default_factory=set)
    tasks: dict[Task, TaskState | None] = field(default_factory=dict)
    writes: Iterator[int] = field(default_factory=itertools.count)

    def run(self, delete_after: int | None = None) -> None:
        """Reconcile until nothing is left to do; delete the resource after some reconciliations."""
        for number in range(PASSES):
            if number == delete_after:
                self.delete()
            if self.resource is None:
                return
            try:
                self._operate()
            except CrashedError:
                for task in [task for task, state in self.tasks.items() if state is None]:
                    if self.work_done:
                        self._work(task)
                self.tasks.clear()
            self.now += self.step_s
            for task in [task for task, state in self.tasks.items() if state is None]:
                self.tasks[task] = Done(self.now, self._work(task))

    def delete(self) -> None:
        """Delete the resource as a user does."""
        deleted = (
            {"deleted_at": self.now} if isinstance(self.resource, Volume) else {"deleted": True}
        )
        self._change(**deleted)

    def states(self) -> dict[Task, TaskState]:
        """Return the tasks that have ended; a task ends before the next reconciliation."""
        return {task: state for task, state in self.tasks.items() if state is not None}

    def _operate(self) -> None:
        outcome = self.reconcile(self)
        if outcome.status != self.resource.status:
            self._write()
            self._change(status=outcome.status)
        for action in outcome.actions:
            match action:
                case AddFinalizer() | RemoveFinalizer():
                    self._write()
                    self._change(has_finalizer=isinstance(action, AddFinalizer))
                case RunTask(task=task):
                    self._write()
                    self.tasks.setdefault(task, None)
                case ForgetTask(task=task):
                    self.tasks.pop(task, None)
                case _:
                    pass  # an Event

    def _write(self) -> None:
        if next(self.writes) == self.crash_at:
            raise CrashedError

    def _change(self, **changes: object) -> None:
        changed = dataclasses.replace(self.resource, **changes)
        deleted = changed.deleted_at if isinstance(changed, Volume) else changed.deleted
        self.resource = changed if changed.has_finalizer or not deleted else None

    def _work(self, task: Task) -> Result:
        match task:
            case TakeSavepoint(folder=folder):
                self.store.add(folder)
                self.savepoints.add(folder)
                return SavepointTaken(folder, 7, self.now, sealed=False)
            case Dispose(locations=locations, folder=folder):
                self.store -= {*locations, folder}
                return Disposed(len(locations))
            case CheckVolume(volume=address):
                self.store.add(f"{address}/owner.json")
                return VolumeChecked(bucket_created=False)
            case Delete(address=address):
                self.store = {one for one in self.store if not one.startswith(f"{address}/")}
                return Deleted(1)
            case Measure():
                return Measured(1, 1)
            case Prune():
                return Pruned(0, 0, 0)
        raise AssertionError(task)


def savepoint_outcome(world: World) -> Outcome[Any, StorageAction]:
    observed = savepoint_builders.observed(tasks=world.states())
    return reconcile_savepoint(world.resource, observed, world.now)


def volume_outcome(world: World) -> Outcome[Any, StorageAction]:
    observed = volume_builders.observed(as_of=world.now, tasks=world.states())
    return reconcile_volume(world.resource, observed, world.now)


def savepoint_world(**spec: object) -> World:
    savepoint = savepoint_builders.savepoint(
        savepoint_builders.spec(reclaim_policy=DELETE, **spec), has_finalizer=False
    )
    return World(savepoint_outcome, savepoint)


def volume_world() -> World:
    volume = volume_builders.volume(
        volume_builders.spec(reclaim_policy=DELETE), has_finalizer=False
    )
    return World(volume_outcome, volume)


def crashes(make: Callable[[], World], delete_after: int | None = None) -> Iterator[World]:
    """Yield the worlds that result from a crash at each write."""
    undisturbed = make()
    undisturbed.run(delete_after)
    writes = next(undisturbed.writes)
    assert writes > 3
    for crash_at, work_done in itertools.product(range(writes), (False, True)):
        world = make()
        world.crash_at, world.work_done = crash_at, work_done
        world.run(delete_after)
        yield world


@pytest.mark.parametrize("delete_after", range(1, 8))
@pytest.mark.parametrize("make", [savepoint_world, volume_world])
def test_a_deleted_resource_leaves_no_data(make: Callable[[], World], delete_after: int) -> None:
    for world in crashes(make, delete_after):
        assert world.resource is None, (world.crash_at, world.work_done)
        assert not world.store, (world.crash_at, world.work_done)


def test_a_savepoint_is_taken_once() -> None:
    for world in crashes(savepoint_world):
        (taken,) = world.resource.status.taken
        assert world.store == {taken.location}


def test_a_schedule_leaves_the_data_of_its_history() -> None:
    def make() -> World:
        world = savepoint_world(schedule=savepoint_builders.HOURLY, history=1)
        world.step_s = 600.0
        return world

    for world in crashes(make):
        (taken,) = world.resource.status.taken
        assert world.store == {taken.location}
        assert len(world.savepoints) > 3


def test_a_volume_becomes_ready() -> None:
    for world in crashes(volume_world):
        assert world.resource.status.phase == "Ready"
