"""Random schedules: Hypothesis or weights choose the steps of drivers, faults and crashes.

The invariants are checked after each step of each driver. A driver may die only of something that
happened to it (`invariants.check_death`). At the end one healthy driver must apply every decided epoch
to every sink. SLUICEGATE_SIM_EXAMPLES sets the number of schedules per machine.
"""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sluicegate.errors import MarkerMismatch, OffsetLogDiverged
from sluicegate.settings.epoch import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.exhaustive_search import recover
from tests.robustness.model.protocol.random_schedules import run_schedule
from tests.robustness.model.protocol.simulated_sealer import start_sealer
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import WorldConfig
from tests.robustness.validate import invariants

EXAMPLES = int(os.environ.get("SLUICEGATE_SIM_EXAMPLES", "200"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
MAX_ALIVE = 3

numbers = st.integers(min_value=0, max_value=1000)
faults = st.sampled_from(["lost", "failed", "late", "glitch"])


class Schedules(RuleBasedStateMachine):
    """What may happen to the drivers and their requests."""

    world: World
    deliveries: ClassVar = [EXACTLY_ONCE]
    reads_ahead: ClassVar = False

    @initialize(
        retention=st.sampled_from([2, 3, 8]),
        parts=st.sampled_from([1, 2, 4]),
        overlap=st.booleans(),
        delivery=st.runner().flatmap(lambda machine: st.sampled_from(machine.deliveries)),
    )
    def begin(self, retention: int, parts: int, overlap: bool, delivery: str) -> None:  # noqa: FBT001 - drawn by name
        config = WorldConfig(
            retention=retention,
            parts=parts,
            overlap=overlap,
            delivery=delivery,
            reads_ahead=self.reads_ahead,
        )
        self.world = World(config)
        self.names = iter(f"{letter}{n}" for n in range(1000) for letter in "ABCDEFGH")
        self.world.start(next(self.names))

    def pick(self, index: int) -> Driver:
        alive = self.world.alive()
        return alive[index % len(alive)]

    @precondition(lambda self: len(self.world.alive()) < MAX_ALIVE)
    @rule(overlap=st.booleans())
    def start_driver(self, overlap: bool) -> None:  # noqa: FBT001 - drawn by name
        """Start a driver with settings of its own: a user may change them between two."""
        self.world.start(next(self.names), overlap=overlap)

    @precondition(
        lambda self: len(self.world.alive()) < MAX_ALIVE and not self.world.has_regressed()
    )
    @rule()
    def start_sealing(self) -> None:
        """Start a sealer. No sink has regressed: a seal cannot detect it."""
        start_sealer(self.world, next(self.names))

    @precondition(lambda self: self.world.alive())
    @rule(index=numbers, steps=st.integers(min_value=1, max_value=40))
    def run(self, index: int, steps: int) -> None:
        driver = self.pick(index)
        for _ in range(steps):
            driver.step()

    @precondition(lambda self: self.world.alive())
    @rule(index=numbers, steps=st.integers(min_value=0, max_value=25), fault=faults)
    def run_into_fault(self, index: int, steps: int, fault: str) -> None:
        driver = self.pick(index)
        for _ in range(steps):
            driver.step()
        driver.step(fault)

    @precondition(lambda self: self.world.alive())
    @rule(
        index=numbers,
        until=st.sampled_from(
            [
                "CreateRecord",
                "CreateSeal",
                "LatestEpoch",
                "commit",
                "log offsets",
                "log commit",
                "Stage",
            ]
        ),
    )
    def run_until_before(self, index: int, until: str) -> None:
        """Run a driver until just before a critical step, so that others can come between."""
        driver = self.pick(index)
        for _ in range(40):
            if not driver.alive or driver.next_step == until:
                return
            driver.step()

    @precondition(lambda self: self.world.alive())
    @rule(index=numbers)
    def crash(self, index: int) -> None:
        self.pick(index).crash()

    @precondition(lambda self: self.world.late)
    @rule(index=numbers, deliver=st.booleans())
    def late_request_ends(self, index: int, deliver: bool) -> None:  # noqa: FBT001 - drawn by name
        self.world.end_late_request(index % len(self.world.late), deliver=deliver)

    @rule()
    def server_ends_connections(self) -> None:
        self.world.sinks["mysql"].end_connections()
        for driver in self.world.alive():
            driver.faulted = True

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.end()

    def end(self) -> None:
        """Apply what is decided, then run nine more epochs: they reveal a sink that regressed."""
        if not self.world.has_regressed():
            invariants.check_recovery(self.world, recover(self.world, name="Y"))
        invariants.check_recovery(self.world, recover(self.world, epochs=9))


class Machine(Schedules):
    """Everything that may happen to a deployment that is operated as documented."""

    def may_be_restored(self) -> bool:
        return len(self.world.sinks["mysql"].history) > 1 and not self.world.may_be_sealed()

    @precondition(may_be_restored)
    @rule(back=st.integers(min_value=1, max_value=4))
    def restore_mysql(self, back: int) -> None:
        history = self.world.sinks["mysql"].history
        if any(sink == "mysql" for _, sink in self.world.discards):
            # The backup may be older than the discard, whose marker holds off a driver that has already
            # read that nothing is discarded. Drivers that start afterwards read the discard again.
            for driver in self.world.alive():
                driver.crash()
        self.world.restore_sink("mysql", max(0, len(history) - 1 - back))

    @precondition(lambda self: self.world.decided and not self.world.is_sealed)
    @rule(sink=st.sampled_from(["kafka", "mysql"]))
    def discard_newest(self, sink: str) -> None:
        newest = max(self.world.decided)
        if self.world.decided[newest].parts_with_rows(sink):
            self.world.discard(newest, sink)

    @precondition(lambda self: not self.world.is_sealed)
    @rule()
    def markers_expire(self) -> None:
        """The job is stopped for longer than Kafka keeps group offsets."""
        for driver in self.world.alive():
            driver.crash()
        self.world.expire_markers("kafka")


class WeakerDeliveries(Schedules):
    """At-least-once loses nothing, at-most-once repeats nothing; sinks that regress go unnoticed."""

    deliveries: ClassVar = [AT_LEAST_ONCE, AT_MOST_ONCE]


class Hazards(Machine):
    """Also what operators must not do: a driver may stop, but no wrong row may become visible."""

    @precondition(lambda self: any(d.next_step == "log offsets" for d in self.world.alive()))
    @rule(index=numbers, fault=st.sampled_from(["overwrite", "vanish"]))
    def break_offset_log(self, index: int, fault: str) -> None:
        """A store without create-if-absent: the last writer wins, or a failed write reports success."""
        drivers_at_step = [d for d in self.world.alive() if d.next_step == "log offsets"]
        drivers_at_step[index % len(drivers_at_step)].step(fault)

    @precondition(lambda self: self.world.decided and not self.world.may_be_sealed())
    @rule(sink=st.sampled_from(["kafka", "mysql"]))
    def wipe_markers(self, sink: str) -> None:
        """Everything is stopped, and somebody re-creates the topic or table of the markers."""
        world = self.world
        for driver in world.alive():
            driver.crash()
        world.events.add("wiped")
        world.sinks[sink].wipe_markers()

    def end(self) -> None:
        try:
            super().end()
        except (OffsetLogDiverged, MarkerMismatch):
            if not self.world.events & {"offsets hazard", "wiped"}:
                raise


FEW = settings(SETTINGS, max_examples=EXAMPLES // 4)
"""Hypothesis shrinks what it finds, but most of its schedules decide one epoch or none."""

MACHINES: tuple[type[Schedules], ...] = (Machine, WeakerDeliveries, Hazards)
SCHEDULES = 160
MOST_WITHOUT_A_DECISION = 0.05


every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.__name__)


def run_schedules(machine: type[Schedules]) -> int:
    """Run the schedules of all seeds; return how many decide no epoch."""
    undecided = 0
    for seed in range(SCHEDULES):
        try:
            undecided += not run_schedule(machine, seed).decided
        except BaseException as error:
            error.add_note(f"in the schedule of seed {seed}")
            raise
    return undecided


@every_machine
def test_invariants_hold_in_random_schedules(machine: type[Schedules]) -> None:
    """Nearly every schedule decides an epoch; otherwise the proportions are wrong."""
    assert run_schedules(machine) <= MOST_WITHOUT_A_DECISION * SCHEDULES


@every_machine
def test_invariants_hold_if_the_first_reads_of_an_epoch_are_old(
    machine: type[Schedules], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As old as the offsets of the epoch, whatever other drivers have done since."""
    monkeypatch.setattr(machine, "reads_ahead", True)
    run_schedules(machine)


def test_wiped_markers_excuse_no_broken_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        invariants.violated("conservation", "by the test")

    simulation = Hazards()
    simulation.begin(retention=2, parts=1, overlap=False, delivery=EXACTLY_ONCE)
    simulation.wipe_markers("kafka")
    monkeypatch.setattr(invariants, "check_recovery", broken)
    with pytest.raises(invariants.InvariantBroken, match="conservation"):
        simulation.end()


TestProtocol = pytest.mark.filterwarnings("error")(Machine.TestCase)
TestProtocol.settings = FEW
TestWeakerDeliveries = pytest.mark.filterwarnings("error")(WeakerDeliveries.TestCase)
TestWeakerDeliveries.settings = FEW
TestHazards = pytest.mark.filterwarnings("error")(Hazards.TestCase)
TestHazards.settings = FEW
