"""An operator that crashes at a given write leaves what it would have left without the crash."""

from __future__ import annotations

import dataclasses
import itertools
from unittest import mock

import pytest

from sluicegate_operator.api.streaming_job_settings import RollbackSettings
from sluicegate_operator.reconcile.actions import CreateDriver, JobAction
from tests.robustness.model.operator.test_simulation import STANDBY
from tests.robustness.model.operator.world import BAD_IMAGE, World, new_world, run_to_rest
from tests.unit.operator.builders import job, spec


def test_operator_that_crashes_during_a_start_creates_one_driver() -> None:
    for actions_done in range(3):
        for in_flight in (False, True):
            world = new_world()
            world.operate(actions_done=actions_done, in_flight=in_flight)
            run_to_rest(world)
            assert world.pods_created == 1
            assert world.resource.status.attempt == 1


@pytest.mark.parametrize("actions_done", [0, 1, 2, 99])
def test_an_operator_that_crashes_during_a_takeover_leaves_one_driver(actions_done: int) -> None:
    """The standby goes on, and a new one is started; no third driver is."""
    world = new_world(job(spec(**STANDBY), has_finalizer=False))
    run_to_rest(world)
    first = next(pod for pod in world.live_pods() if not pod.standby)
    world.tick(100)
    world.end(first, 137)
    world.operate(actions_done=actions_done)
    world.check()
    run_to_rest(world)
    assert {pod.attempt: pod.standby for pod in world.live_pods()} == {2: False, 3: True}
    assert world.resource.status.attempt == 2
    assert world.pods_created == 3


def test_a_standby_that_is_promoted_by_an_old_cache_though_it_is_dead_is_replaced() -> None:
    world = new_world(job(spec(**STANDBY), has_finalizer=False))
    run_to_rest(world)
    world.tick(100)
    for pod in sorted(world.live_pods(), key=lambda pod: pod.attempt):
        world.end(pod, 137)
    world.operate(pods_age=1)
    assert world.resource.status.attempt == 2
    world.check()
    run_to_rest(world)
    assert {pod.attempt: pod.standby for pod in world.live_pods()} == {3: False, 4: True}


@pytest.mark.parametrize("exit_code", [0, 137], ids=["all applied", "apply-only driver needed"])
def test_an_operator_that_crashes_at_any_write_of_a_deletion_leaves_no_held_pod(
    exit_code: int,
) -> None:
    """Once the job is gone no reconciliation follows, so its pods must have been released before."""
    for crash_pass in range(8):
        for actions_done in range(3):
            world = new_world()
            run_to_rest(world)
            world.change(deleted=True)
            for number in range(40):
                world.operate(actions_done=actions_done if number == crash_pass else 99)
                if not world.resource.has_finalizer:
                    break
                for pod in world.live_pods():
                    world.bind(pod)
                for pod in world.live_pods():
                    world.run(pod)
                for pod in world.live_pods():
                    world.end(pod, 0 if pod.mode == "ApplyOnly" else exit_code)
                world.tick(7)
            assert not world.resource.has_finalizer
            assert not world.pods, (crash_pass, actions_done)


UPGRADES: dict[str, dict[str, object]] = {
    "by last state": {"image": "jobs:2", "upgrade_mode": "LastState"},
    "by savepoint": {"image": "jobs:2", "upgrade_mode": "Savepoint"},
    "without state": {"image": "jobs:2", "upgrade_mode": "Stateless"},
    "rolled back": {"image": BAD_IMAGE, "upgrade_mode": "LastState"},
    "rolled back by savepoint": {"image": BAD_IMAGE, "upgrade_mode": "Savepoint"},
}


@dataclasses.dataclass(frozen=True)
class Crash:
    """A crash of the operator in one of its reconciliations, after the write of the status.

    Args:
        reconciliation: its number, from 0.
        actions_done: number of actions that it completes.
        in_flight: whether its request to create a pod is under way then, and lost.
    """

    reconciliation: int
    actions_done: int
    in_flight: bool = False


def upgraded(upgrade: str, crash: Crash | None = None) -> tuple[World, list[Crash]]:
    """Upgrade a running job until the world is at rest; return it, and the crashes that can happen."""
    rollback = RollbackSettings(enabled=True, deadline_s=60.0)
    world = new_world(job(spec(rollback=rollback, savepoint_timeout_s=60.0), has_finalizer=False))
    run_to_rest(world)
    world.tick(3600)
    run_to_rest(world)
    assert world.resource.status.last_stable_spec is not None
    new_spec = dataclasses.replace(world.resource.spec, **UPGRADES[upgrade])  # type: ignore[arg-type]
    world.change(spec=new_spec, generation=world.resource.generation + 1)
    operate, numbers = world.operate, itertools.count()
    crashes: list[Crash] = []

    def reconcile() -> tuple[bool, tuple[JobAction, ...]]:
        number = next(numbers)
        if crash is not None and number == crash.reconciliation:
            return operate(actions_done=crash.actions_done, in_flight=crash.in_flight)
        changed, actions = operate()
        crashes.extend(Crash(number, done) for done in range(len(actions)))
        if any(isinstance(action, CreateDriver) for action in actions):
            crashes.append(Crash(number, len(actions), in_flight=True))
        return changed, actions

    with mock.patch.object(world, "operate", reconcile):
        run_to_rest(world)
    return world, crashes


@pytest.mark.parametrize("upgrade", UPGRADES)
def test_an_operator_that_crashes_at_any_write_of_an_upgrade_leaves_what_no_crash_leaves(
    upgrade: str,
) -> None:
    """The same driver on the same checkpoint, no other savepoint, and no pod of an earlier driver."""

    def result(world: World) -> object:
        status = world.resource.status
        (driver,) = world.pods.values()
        return (
            status.phase,
            driver.spec_hash,
            status.checkpoint.number,
            status.checkpoint.restored_from,
            len(world.storage.savepoints),
            # how often a driver of a bad image is restarted until its deadline depends on the crash
            driver.spec_hash == world.resource.spec.running_hash() and world.pods_created,
        )

    world, crashes = upgraded(upgrade)
    expected = result(world)
    assert len(crashes) > 3
    for crash in crashes:
        assert result(upgraded(upgrade, crash)[0]) == expected, crash
