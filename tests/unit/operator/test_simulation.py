"""Any order of pods' fates, old views, dying operators and a user's changes keeps the laws.

Never two drivers of a stateful job that could write; an attempt's number is never used twice; and
when the world is quiet, the job comes to rest as it should be, and nothing is written any more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sluicegate_operator.reconcile import limits
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.resources.job import RollbackSettings, Schedule, StreamingJobSpec

from .made import job, spec
from .storage import LawBroken
from .walks import walk
from .world import BAD, World, settle, world_of

CODES = st.sampled_from([0, 1, 64, 65, 66, 75, 137, 143])
AGES = st.sampled_from([0, 0, 0, 1, 2, 3, 8, 30])
WHICH = st.integers(0, 5)


class Cluster(RuleBasedStateMachine):
    """One stateful job; whatever can happen to it."""

    ROLLBACK = RollbackSettings(enabled=True, deadline_s=60.0)
    MODES: ClassVar[tuple[str, ...]] = ("last-state", "savepoint", "stateless")

    def __init__(self) -> None:
        super().__init__()
        self.world: World = world_of(job(self.first(), held=False))

    def first(self) -> StreamingJobSpec:
        return spec(rollback=self.ROLLBACK, savepoint_timeout_s=60.0)

    def pod(self, which: int) -> Pod | None:
        alive = self.world.live_pods()
        return alive[which % len(alive)] if alive else None

    @rule(
        ages=st.tuples(AGES, AGES, AGES),
        acts_done=st.integers(0, 4),
        late=st.booleans(),
    )
    def operator_errs(self, ages: tuple[int, int, int], acts_done: int, late: bool) -> None:  # noqa: FBT001 - drawn
        job_age, view_age, taken_age = ages
        self.world.operate(
            job_age=job_age,
            view_age=view_age,
            taken_age=taken_age,
            acts_done=acts_done,
            late=late,
        )

    @rule(times=st.integers(1, 3))
    def operator_passes(self, times: int) -> None:
        for _ in range(times):
            self.world.operate()

    @rule(which=WHICH, fate=st.sampled_from(["seal", "ready", "fail"]))
    def savepoint_meets_its_fate(self, which: int, fate: str) -> None:
        names = sorted(self.world.storage.savepoints)
        if names:
            getattr(self.world.storage, fate)(names[which % len(names)])

    @rule()
    def savepoints_are_taken(self) -> None:
        self.world.take_savepoints()

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 20.0, 31.0, 700.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule(which=WHICH, lost=st.booleans())
    def request_lands(self, which: int, lost: bool) -> None:  # noqa: FBT001 - drawn
        if self.world.late:
            self.world.land(which % len(self.world.late), lost=lost)

    @rule(which=WHICH)
    def pod_starts(self, which: int) -> None:
        for step in (self.world.bind, self.world.run, self.world.progress):
            self.on(which, step)

    @rule(
        which=WHICH,
        fate=st.sampled_from(
            ["bind", "run", "progress", "delete_pod", "silence", "return_node", "remove_node"]
        ),
    )
    def pod_meets_its_fate(self, which: int, fate: str) -> None:
        self.on(which, getattr(self.world, fate))

    @rule(which=WHICH, code=CODES)
    def process_ends(self, which: int, code: int) -> None:
        self.on(which, lambda pod: self.world.end(pod, code))

    def on(self, which: int, step: Callable[[Pod], None]) -> None:
        pod = self.pod(which)
        if pod is not None:
            step(pod)

    @rule(suspend=st.booleans())
    def user_suspends_or_resumes(self, suspend: bool) -> None:  # noqa: FBT001 - drawn
        self.spec(suspend=suspend)

    @rule(
        image=st.sampled_from(["jobs:1", "jobs:2", BAD]),
        mode=st.sampled_from(["last-state", "savepoint", "stateless"]),
    )
    def user_upgrades(self, image: str, mode: str) -> None:
        self.spec(image=image, upgrade_mode=mode if mode in self.MODES else "last-state")

    @rule(seconds=st.sampled_from([0.5, 7.0, 61.0]), times=st.integers(1, 8))
    def all_goes_well_for_a_while(self, seconds: float, times: int) -> None:
        for _ in range(times):
            for which in range(len(self.world.live_pods())):
                self.pod_starts(which)
            self.world.operate()
            self.world.check()
            self.world.tick(seconds)

    @rule()
    def user_restarts(self) -> None:
        self.spec(restart_nonce=self.world.resource.spec.restart_nonce + 1)

    @rule(sure=st.sampled_from([False, False, False, True]))
    def user_deletes(self, sure: bool) -> None:  # noqa: FBT001 - drawn
        if sure and not self.world.resource.deleted:
            self.world.change(deleted=True)

    def spec(self, **changes: object) -> None:
        was = self.world.resource
        wanted = dataclasses.replace(was.spec, **changes)  # type: ignore[arg-type]
        if wanted != was.spec:
            self.world.storage.told.clear()
            self.world.change(spec=wanted, generation=was.generation + 1)

    @invariant()
    def laws(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Resume, pardon, and let the world be quiet: one driver runs, of the newest spec."""
        if self.world.resource.deleted:
            self.goes()
            return
        self.spec(suspend=False)
        self.user_restarts()
        status = self.world.resource.status
        if status.good is None or self.world.specs[status.good.spec_hash].image == BAD:
            self.spec(image="jobs:1")  # there is nothing to go back to
        settle(self.world)
        self.rests()
        writes = self.world.writes
        for _ in range(3):
            assert self.world.operate() == (False, ())
        assert self.world.writes == writes

    def rests(self) -> None:
        """See one driver: of the resource's spec, or of the last good one if that is bad."""
        status, wanted = self.world.resource.status, self.world.resource.spec
        assert status.phase == "Running", status
        (alive,) = self.world.live_pods()
        assert alive.attempt == status.attempt
        if wanted.image == BAD:
            assert status.rollback is not None
            assert status.good is not None
            assert alive.spec_hash == status.good.spec_hash
        else:
            assert status.rollback is None
            assert alive.spec_hash == wanted.running_hash()

    def goes(self) -> None:
        """Let the world be quiet after a deletion: the job goes, if need be when it is told to."""
        settle(self.world)
        if self.world.resource.held:
            assert self.world.resource.status.failed
            self.world.change(skip_finish=True)
            settle(self.world)
        assert not self.world.resource.held
        assert not self.world.processes


EXAMPLES = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Batches(Cluster):
    """A batch job that is due every ten minutes."""

    MODES: ClassVar[tuple[str, ...]] = ("last-state", "stateless")

    def first(self) -> StreamingJobSpec:
        return spec(trigger="once", schedule=Schedule(cron="*/10 * * * *"))

    def rests(self) -> None:
        """See none: each run that was due is done."""
        status = self.world.resource.status
        assert status.phase == "Waiting", status
        assert not self.world.live_pods()


@pytest.mark.parametrize("machine", [Cluster, Batches], ids=lambda machine: machine.__name__)
def test_no_interleaving_makes_two_drivers_and_all_come_to_rest(machine: type[Cluster]) -> None:
    run_state_machine_as_test(machine, settings=EXAMPLES)


WALKS = 100


@pytest.mark.parametrize("machine", [Cluster, Batches], ids=lambda machine: machine.__name__)
def test_no_random_walk_breaks_a_law_and_all_come_to_rest(machine: type[Cluster]) -> None:
    for seed in range(WALKS):
        try:
            walk(machine, seed)
        except AssertionError as error:
            error.add_note(f"in the walk of seed {seed}")
            raise


def lives_through_old_views() -> None:
    """Let operators act on views from before the driver's pod was made."""
    world = world_of()
    settle(world)
    for _ in range(4):
        world.tick(6)
        world.operate(view_age=len(world.views))
        world.check()


def lives_through_an_old_status() -> None:
    """Let an operator act on the job as it was two drivers ago."""
    world = world_of()
    settle(world)
    old = world.version
    for _ in range(2):
        (pod,) = world.live_pods()
        world.end(pod, 1)
        settle(world)
    world.operate(job_age=world.version - old, view_age=len(world.views) // 2)
    world.check()


def lives_through_a_silent_node() -> None:
    """Let a stateful driver's node be silent for an hour, while it goes on."""
    world = world_of()
    settle(world)
    (pod,) = world.live_pods()
    world.silence(pod)
    world.tick(3600)
    world.operate()
    world.check()


Scene = Callable[[], None]
Patch = tuple[object, str, object]


@pytest.mark.parametrize(
    ("scene", "broken"),
    [
        (lives_through_old_views, (Pass, "believes_absence", lambda _p: True)),
        (
            lives_through_an_old_status,
            (World, "guarded", property(lambda _w: False, lambda *_: None)),
        ),
        (lives_through_a_silent_node, (limits, "may_replace_silent", lambda _p: True)),
    ],
    ids=lambda given: given.__name__ if callable(given) else given[1],
)
def test_the_laws_notice_an_operator_that_is_broken_on_purpose(
    scene: Scene, broken: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene()
    monkeypatch.setattr(*broken)
    with pytest.raises(LawBroken):
        scene()


def test_a_stateless_job_on_a_silent_node_goes_on_beside_its_zombie() -> None:
    """And the zombie is stopped when its node returns."""
    world = world_of(job(spec(stateful=False), held=False))
    world.told = True
    settle(world)
    (first,) = world.live_pods()
    world.silence(first)
    world.tick(61)
    world.operate()
    assert {pod.attempt for pod in world.live_pods()} == {1, 2}
    assert world.resource.status.may_be_alive == (1,)
    settle(world)
    assert [pod.attempt for pod in world.live_pods()] == [2]
    assert not world.resource.status.may_be_alive


def test_an_operator_that_dies_at_any_point_of_a_start_makes_one_driver() -> None:
    for acts_done in range(3):
        for late in (False, True):
            world = world_of()
            world.operate(acts_done=acts_done, late=late)
            settle(world)
            assert world.made == 1
            assert world.resource.status.attempt == 1
