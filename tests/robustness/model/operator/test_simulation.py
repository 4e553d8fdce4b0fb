"""Any order of faults, stale caches, crashing operators and user actions keeps the operator's invariants.

There are never two drivers of a stateful job that could write, and no attempt's number is used twice.
Once nothing fails any more, the job comes to rest in the right state and nothing is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sluicegate_operator.api.schedule import RunSchedule
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import ExecutorSettings, RollbackSettings
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.streaming_job import driver_lifecycle, watchdog
from sluicegate_operator.reconcile.streaming_job.context import JobContext
from sluicegate_operator.reconcile.streaming_job.failures import DriverEnd
from tests.robustness.model.operator.random_schedules import run_schedule
from tests.robustness.model.operator.storage import InvariantViolated
from tests.robustness.model.operator.world import BAD_IMAGE, World, new_world, run_to_rest
from tests.unit.operator.builders import job, spec

CODES = st.sampled_from([0, 1, 64, 65, 66, 75, 137, 143])
AGES = st.sampled_from([0, 0, 0, 1, 2, 3, 8, 30])
INDEXES = st.integers(0, 5)
STANDBY: dict[str, Any] = {"standby": 1, "executor": ExecutorSettings(instances=0)}


class Cluster(RuleBasedStateMachine):
    """One stateful job, and everything that can happen to it."""

    ROLLBACK = RollbackSettings(enabled=True, deadline_s=60.0)
    MODES: ClassVar[tuple[str, ...]] = ("LastState", "Savepoint", "Stateless")

    def __init__(self) -> None:
        super().__init__()
        self.world: World = new_world(job(self.first(), has_finalizer=False))

    def first(self) -> StreamingJobSpec:
        return spec(rollback=self.ROLLBACK, savepoint_timeout_s=60.0)

    def pod(self, index: int) -> Pod | None:
        alive = self.world.live_pods()
        return alive[index % len(alive)] if alive else None

    @rule(
        ages=st.tuples(AGES, AGES, AGES),
        actions_done=st.integers(0, 4),
        in_flight=st.booleans(),
    )
    def operator_fails(
        self,
        ages: tuple[int, int, int],
        actions_done: int,
        in_flight: bool,  # noqa: FBT001 - generated
    ) -> None:
        job_age, pods_age, savepoints_age = ages
        self.world.operate(
            job_age=job_age,
            pods_age=pods_age,
            savepoints_age=savepoints_age,
            actions_done=actions_done,
            in_flight=in_flight,
        )

    @rule(times=st.integers(1, 3))
    def operator_reconciles(self, times: int) -> None:
        for _ in range(times):
            self.world.operate()

    @rule(index=INDEXES, change=st.sampled_from(["seal", "ready", "fail"]))
    def savepoint_changes(self, index: int, change: str) -> None:
        names = sorted(self.world.storage.savepoints)
        if names:
            getattr(self.world.storage, change)(names[index % len(names)])

    @rule()
    def savepoints_are_taken(self) -> None:
        self.world.take_savepoints()

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 20.0, 31.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule(index=INDEXES, lost=st.booleans())
    def request_arrives(self, index: int, lost: bool) -> None:  # noqa: FBT001 - generated
        if self.world.in_flight:
            self.world.arrive(index % len(self.world.in_flight), lost=lost)

    @rule(index=INDEXES)
    def pod_starts(self, index: int) -> None:
        for step in (self.world.bind, self.world.run, self.world.progress):
            self.on(index, step)

    @rule(
        index=INDEXES,
        change=st.sampled_from(
            ["bind", "run", "progress", "delete_pod", "lose_node", "return_node", "remove_node"]
        ),
    )
    def pod_changes(self, index: int, change: str) -> None:
        self.on(index, getattr(self.world, change))

    @rule(index=INDEXES, code=CODES)
    def process_ends(self, index: int, code: int) -> None:
        self.on(index, lambda pod: self.world.end(pod, code))

    def on(self, index: int, step: Callable[[Pod], None]) -> None:
        pod = self.pod(index)
        if pod is not None:
            step(pod)

    @rule(suspend=st.booleans())
    def user_suspends_or_resumes(self, suspend: bool) -> None:  # noqa: FBT001 - generated
        self.spec(suspend=suspend)

    @rule(
        image=st.sampled_from(["jobs:1", "jobs:2", BAD_IMAGE]),
        mode=st.sampled_from(["LastState", "Savepoint", "Stateless"]),
    )
    def user_upgrades(self, image: str, mode: str) -> None:
        self.spec(image=image, upgrade_mode=mode if mode in self.MODES else "LastState")

    @rule(seconds=st.sampled_from([0.5, 7.0, 61.0]), times=st.integers(1, 8))
    def everything_works_for_a_while(self, seconds: float, times: int) -> None:
        for _ in range(times):
            for index in range(len(self.world.live_pods())):
                self.pod_starts(index)
            self.world.operate()
            self.world.check()
            self.world.tick(seconds)

    @rule()
    def user_restarts(self) -> None:
        self.spec(restart_nonce=self.world.resource.spec.restart_nonce + 1)

    @rule(sure=st.sampled_from([False, False, False, True]))
    def user_deletes(self, sure: bool) -> None:  # noqa: FBT001 - generated
        if sure and not self.world.resource.deleted:
            self.world.change(deleted=True)

    def spec(self, **changes: object) -> None:
        resource = self.world.resource
        new_spec = dataclasses.replace(resource.spec, **changes)  # type: ignore[arg-type]
        if new_spec != resource.spec:
            self.world.storage.sealed_drivers.clear()
            self.world.change(spec=new_spec, generation=resource.generation + 1)

    @invariant()
    def assert_invariants(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Resume and restart the job without faults: one driver runs the newest spec."""
        if self.world.resource.deleted:
            self.run_deletion()
            return
        self.spec(suspend=False)
        self.user_restarts()
        status = self.world.resource.status
        if (
            status.last_stable_spec is None
            or self.world.specs[status.last_stable_spec.spec_hash].image == BAD_IMAGE
        ):
            self.spec(image="jobs:1")  # there is no stable spec to roll back to
        run_to_rest(self.world)
        self.check_rest()
        writes = self.world.writes
        for _ in range(3):
            assert self.world.operate() == (False, ())
        assert self.world.writes == writes

    def check_rest(self) -> None:
        """Assert that one driver runs: with the resource's spec, or the last stable one if that is bad."""
        status, new_spec = self.world.resource.status, self.world.resource.spec
        assert status.phase == "Running", status
        (alive,) = self.world.live_pods()
        assert alive.attempt == status.attempt
        if new_spec.image == BAD_IMAGE:
            assert status.rollback is not None
            assert status.last_stable_spec is not None
            assert alive.spec_hash == status.last_stable_spec.spec_hash
        else:
            assert status.rollback is None
            assert alive.spec_hash == new_spec.running_hash()

    def run_deletion(self) -> None:
        """Run the world after a deletion until the job is released, if necessary with skip-apply."""
        run_to_rest(self.world)
        if self.world.resource.has_finalizer:
            assert self.world.resource.status.failure_reason
            self.world.change(skip_apply=True)
            run_to_rest(self.world)
        assert not self.world.resource.has_finalizer
        assert not self.world.processes


EXAMPLES = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Batches(Cluster):
    """A batch job with a run every ten minutes."""

    MODES: ClassVar[tuple[str, ...]] = ("LastState", "Stateless")
    SCHEDULE: ClassVar[RunSchedule] = RunSchedule(cron="*/10 * * * *")

    def first(self) -> StreamingJobSpec:
        return spec(trigger="Once", schedule=self.SCHEDULE)

    def check_rest(self) -> None:
        """Assert that no driver runs: each run that was due is finished."""
        status = self.world.resource.status
        assert status.phase == "Waiting", status
        assert not self.world.live_pods()


class ReplacingBatches(Batches):
    """A batch job each of whose runs replaces the one before if that has not ended."""

    SCHEDULE = RunSchedule(cron="*/10 * * * *", concurrency_policy="Replace")


class WithStandby(Cluster):
    """A stateful job with a standby."""

    def first(self) -> StreamingJobSpec:
        return dataclasses.replace(super().first(), **STANDBY)

    @rule()
    def driver_is_killed_while_a_standby_waits(self) -> None:
        if self.world.waiting:
            for pod in self.world.live_pods():
                if pod.uid not in self.world.waiting:
                    self.world.end(pod, 137)

    def check_rest(self) -> None:
        """Assert the same of the driver, and that a standby of its spec is ready."""
        (waiting,) = (pod for pod in self.world.live_pods() if pod.standby)
        status = self.world.resource.status
        assert status.standby is not None
        assert (status.standby.state, status.standby.attempt) == ("Ready", waiting.attempt)
        assert waiting.uid in self.world.waiting
        (driver,) = (pod for pod in self.world.live_pods() if not pod.standby)
        assert waiting.spec_hash == driver.spec_hash
        self.world.pods.pop(waiting.name)
        super().check_rest()
        self.world.pods[waiting.name] = waiting


MACHINES = [Cluster, Batches, ReplacingBatches, WithStandby]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_invariants_hold_in_generated_interleavings(machine: type[Cluster]) -> None:
    run_state_machine_as_test(machine, settings=EXAMPLES)


SCHEDULES = 100


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_invariants_hold_in_random_schedules(machine: type[Cluster]) -> None:
    for seed in range(SCHEDULES):
        try:
            run_schedule(machine, seed)
        except AssertionError as error:
            error.add_note(f"in the schedule of seed {seed}")
            raise


def stale_pod_cache() -> None:
    """Run operators with pod caches that are older than the driver's pod."""
    world = new_world()
    run_to_rest(world)
    for _ in range(4):
        world.tick(6)
        world.operate(pods_age=len(world.pod_history))
        world.check()


def stale_status() -> None:
    """Run an operator with a job cache that is two drivers old."""
    world = new_world()
    run_to_rest(world)
    old_version = world.version
    for _ in range(2):
        (pod,) = world.live_pods()
        world.end(pod, 1)
        run_to_rest(world)
    world.operate(job_age=world.version - old_version, pods_age=len(world.pod_history) // 2)
    world.check()


def lost_node() -> None:
    """Lose the node of a stateful driver for an hour while the driver continues."""
    world = new_world()
    run_to_rest(world)
    (pod,) = world.live_pods()
    world.lose_node(pod)
    world.tick(3600)
    world.operate()
    world.check()


def killed_during_deletion() -> None:
    """Delete a job whose driver is killed while it stops: an apply-only driver is needed."""
    world = new_world()
    run_to_rest(world)
    (pod,) = world.live_pods()
    world.change(deleted=True)
    world.operate()
    world.end(pod, 137)
    run_to_rest(world)
    assert not world.resource.has_finalizer


def every_end_has_applied_all(context: JobContext, pod: Pod, end: DriverEnd) -> None:
    record_end(context, pod, end)
    context.set(all_epochs_applied=True)


record_end = vars(driver_lifecycle)["_record_end"]
Scenario = Callable[[], None]
Patch = tuple[object, str, object]


@pytest.mark.parametrize(
    ("scenario", "broken", "violation"),
    [
        (
            stale_pod_cache,
            (JobContext, "absence_confirmed", lambda _p: True),
            "two drivers of a stateful job",
        ),
        (
            stale_status,
            (World, "rejects_conflicts", property(lambda _w: False, lambda *_: None)),
            "the attempt number decreased",
        ),
        (
            lost_node,
            (watchdog, "may_replace_on_lost_node", lambda _p: True),
            "two drivers of a stateful job",
        ),
        (
            killed_during_deletion,
            (driver_lifecycle, "_record_end", every_end_has_applied_all),
            "the job is released with an unapplied epoch",
        ),
    ],
    ids=lambda parameter: parameter.__name__ if callable(parameter) else parameter[1],
)
def test_broken_operator_violates_an_invariant(
    scenario: Scenario, broken: Patch, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario()
    monkeypatch.setattr(*broken)
    with pytest.raises(InvariantViolated, match=violation):
        scenario()


def test_stateless_job_on_a_lost_node_is_replaced() -> None:
    """The old driver is stopped when its node returns."""
    world = new_world(job(spec(stateful=False), has_finalizer=False))
    world.may_have_two_drivers = True
    run_to_rest(world)
    (first,) = world.live_pods()
    world.lose_node(first)
    world.tick(61)
    world.operate()
    assert {pod.attempt for pod in world.live_pods()} == {1, 2}
    assert world.resource.status.unconfirmed_attempts == (1,)
    run_to_rest(world)
    assert [pod.attempt for pod in world.live_pods()] == [2]
    assert not world.resource.status.unconfirmed_attempts
