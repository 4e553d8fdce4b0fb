"""Searches for the fewest faults in which the checker sees that a committer is broken.

A schedule has one fault for each of the first drivers; then a healthy driver completes the job. The
rows of the simulated sinks become a history of a job like two_sinks, and `checker` judges it. It knows
nothing of records, markers and epochs, and the invariants of the simulation are switched off.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.exhaustive_search import to_the_end
from tests.robustness.model.protocol.simulated_sealer import start_sealer
from tests.robustness.model.protocol.simulated_sinks import Part
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import WorldConfig
from tests.robustness.validate import invariants
from tests.robustness.validate.checker.history import LOST, History, Limits, Record
from tests.robustness.validate.checker.jobs import check_two_sinks

SINKS = (("kafka", "fencing"), ("mysql", "locking"), ("letters", "fencing"))
BROKEN_EVERY = 3
"""Every third record of the source is broken: it is a dead letter, and in no other sink."""

MOST_STEPS, MOST_FAULTS = 200, 2
ROUNDS = 20
"""How often a driver is restarted until the job counts as one that does not go on."""

_SLOT, _TIME = "2026-01-07T12:00:00", "2026-01-07T12:00:00Z"


class Fault(NamedTuple):
    """What happens to a driver, and before which of its steps.

    'crash': it dies. 'pause': it continues after the next driver has ended. 'overwrite': it is paused
    too, and its next step replaces `offsets/N`, as on a store without create-if-absent. 'lost',
    'failed' and 'late': what becomes of its request (`simulated_sinks.Fault`).
    """

    kind: str
    step: int
    at: str = ""
    """The name of the step, for people."""


Schedule = tuple[Fault, ...]

_KINDS = ("crash", "pause", "lost", "failed", "late", "overwrite")
"""The simplest fault first: a search names the first one that it finds."""

_KINDS_AT = {
    "CreateRecord": ("lost", "failed", "late"),
    "commit": ("lost", "failed", "late"),
    "write": ("failed",),
    "log offsets": ("overwrite",),
}
"""The kinds that need a certain step."""


class Outcome(NamedTuple):
    """How a schedule ended.

    Args:
        history: what the checker judges.
        stopped: the job refuses to continue; what it has not written yet is not lost.
    """

    history: History
    stopped: bool


# --- histories ------------------------------------------------------------------------------


def history_of(world: World, ends: dict[str, int], names: dict[str, str]) -> History:
    """Return what is in the sinks as the history of a job like two_sinks.

    Args:
        world: one of those that share the sinks.
        ends: job -> the number of its records.
        names: the first letter of a driver's name -> its job.
    """
    source = [(job, number) for job, end in ends.items() for number in range(end)]
    positions = {place: offset for offset, place in enumerate(source)}
    rows = {
        name: [
            ((names[row.attempt[0]], row.offset), row.attempt)
            for part in sink.parts
            for row in part.rows
            if (name == "letters") is _is_broken(row.offset)
        ]
        for name, sink in world.sinks.items()
    }
    topic = [
        {"id": f"{attempt} {place}", "slot_time": _SLOT, "key1": str(place), "indicate": 1}
        for place, attempt in rows["kafka"]
    ]
    table = Counter(str(place) for place, _ in rows["mysql"])
    return History(
        "source",
        tuple(Record(0, offset, None, _value(place)) for offset, place in enumerate(source)),
        tuple(Record(0, 0, str(r["key1"]).encode(), json.dumps(r | _KEYS).encode()) for r in topic),
        tuple((_SLOT, key, "", "", count) for key, count in table.items()),
        tuple(_letter(place, positions.get(place, -1)) for place, _ in rows.get("letters", ())),
    )


_KEYS = {"key2": "", "key3": ""}


def _is_broken(offset: int) -> bool:
    return offset % BROKEN_EVERY == BROKEN_EVERY - 1


def _value(place: tuple[str, int]) -> bytes:
    if _is_broken(place[1]):
        return f"broken {place}".encode()
    return json.dumps({"time": _TIME, "key1": str(place), "indicate": 1} | _KEYS).encode()


def _letter(place: tuple[str, int], offset: int) -> bytes:
    source = {"topic": "source", "partition": 0, "offset": offset}
    digest = sha256(_value(place)).hexdigest()
    letter = {"reason": "unparsed: broken", "payload_sha256": digest, "source": source}
    return json.dumps(letter).encode()


def anomalies(outcome: Outcome) -> set[str]:
    """Return the kinds of anomalies that the checker finds."""
    found = check_two_sinks(outcome.history, Limits()).kinds
    return found - {LOST} if outcome.stopped else found


# --- scenarios ------------------------------------------------------------------------------


def config_of(**changes: Any) -> WorldConfig:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {"sinks": SINKS, "parts": 1, "retention": 9, "size": _size}
    return WorldConfig(**(fields | changes))


def _size(name: str, _epoch: int) -> int:
    """Return the input of an epoch: another driver plans another amount."""
    return 3 + int(name[1:]) % 2


class Paused(NamedTuple):
    """A driver that is paused, and the fault of its next step."""

    driver: Driver
    fault: str | None


def run_until(driver: Driver, step: int) -> bool:
    """Perform a number of steps; return False if the driver ends before."""
    for _ in range(step):
        _step(driver)
        if not driver.alive:
            return False
    return True


def _step(driver: Driver, fault: str | None = None) -> None:
    driver.step("failed" if driver.blocked else fault)  # a server ends the wait for a lock


def finish(driver: Driver) -> Driver:
    """Run a driver to its end."""
    for _ in range(MOST_STEPS):
        if not driver.alive:
            return driver
        _step(driver)
    raise AssertionError(f"{driver.name} never ends")


def run_with_faults(world: World, schedule: Schedule, job: str, last: int) -> list[Paused] | None:
    """Run a driver for each fault; return what is paused, None if a driver ended before its fault."""
    paused: list[Paused] = []
    for number, fault in enumerate(schedule):
        driver = world.start(f"{job}{number}", last=last)
        if not run_until(driver, fault.step):
            return None
        sleeping, paused = paused, []
        if fault.kind == "crash":
            driver.crash()
        elif fault.kind in ("pause", "overwrite"):
            paused = [Paused(driver, "overwrite" if fault.kind == "overwrite" else None)]
        else:
            _step(driver, fault.kind)
            finish(driver)
        wake(world, sleeping)
    return paused


def wake(world: World, paused: list[Paused]) -> None:
    """Let paused drivers continue to their end, then deliver what is in the network."""
    for driver, fault in paused:
        _step(driver, fault)
        finish(driver)
    deliver(world)


def deliver(world: World) -> None:
    """Deliver the requests that are in the network."""
    while world.late:
        world.end_late_request(0, deliver=True)


def complete(world: World, job: str, first: int, last: int) -> bool:
    """Restart drivers until one ends well; return False if the job does not go on."""
    for number in range(first, first + 4):
        driver = finish(world.start(f"{job}{number}", last=last))
        deliver(world)
        if driver.error is None:
            return True
    return False


def one_job(config: WorldConfig, schedule: Schedule) -> Outcome | None:
    """Run one job; after its faults it is completed, and runs one more epoch."""
    world = World(config)
    paused = run_with_faults(world, schedule, "D", last=0)
    if paused is None:
        return None
    count = len(schedule)
    completed = complete(world, "D", count, last=0)
    wake(world, paused)
    completed = completed and complete(world, "D", count + 4, last=1)
    return Outcome(history_of(world, {"D": _read(world, completed)}, {"D": "D"}), not completed)


def _read(world: World, completed: bool) -> int:  # noqa: FBT001 - one of two states
    """Return how many records the job has read; of one that stopped, all that anybody has read."""
    if completed:
        return world.offsets[max(world.offsets)]
    return max([0, *(end for _, end in world.ranges.values())])


def new_checkpoint(config: WorldConfig, schedule: Schedule) -> Outcome | None:
    """Run a job; then run another one with a new checkpoint into the same sinks."""
    world = World(config)
    if run_with_faults(world, schedule, "D", last=0) is None:
        return None
    completed = complete(world, "D", len(schedule), last=0)
    other = sharing(world, "E")
    completed = complete(other, "E", 0, last=0) and completed
    ends = {"D": _read(world, completed), "E": _read(other, completed)}
    return Outcome(history_of(world, ends, {"D": "D", "E": "E"}), not completed)


def two_jobs(config: WorldConfig, schedule: Schedule) -> Outcome | None:
    """Run two jobs step by step next to each other, and restart them, until both have ended."""
    if schedule:
        return None
    world = World(config)
    worlds = {"D": world, "E": sharing(world, "E")}
    running: dict[str, Driver] = {job: w.start(f"{job}0", last=0) for job, w in worlds.items()}
    for number in range(1, ROUNDS):
        for _ in range(MOST_STEPS):
            for driver in running.values():
                if driver.alive:
                    _step(driver)
        for job, driver in running.items():
            if driver.error is not None:
                running[job] = worlds[job].start(f"{job}{number}", last=0)
    ends = {job: w.offsets[max(w.offsets)] for job, w in worlds.items()}
    return Outcome(history_of(world, ends, {"D": "D", "E": "E"}), stopped=False)


def moved_job(config: WorldConfig, schedule: Schedule) -> Outcome | None:
    """Run a job, seal its lineage and continue in another one, without taking over the sinks.

    The takeover at the first start of the successor fences a zombie too; here the seal is alone.
    """
    world = World(config)
    paused = run_with_faults(world, schedule, "D", last=1)
    if paused is None:
        return None
    if not schedule:
        complete(world, "D", 0, last=0)
    if to_the_end(start_sealer(world, "S")).error is not None:
        completed = complete(world, "D", len(schedule), last=1)
        if not completed or to_the_end(start_sealer(world, "S")).error is not None:
            return None
    sealed = max(world.commits)
    successor = sharing(world, "L2")
    successor.offsets, successor.commits = {sealed: world.offsets[sealed]}, {sealed}
    successor.job = replace(successor.job, first_epoch=sealed + 1)
    completed = complete(successor, "C", 0, last=sealed + 1)
    wake(world, paused)
    names = {"D": "D", "C": "D"}
    return Outcome(history_of(world, {"D": _read(successor, completed)}, names), not completed)


def sharing(world: World, lineage: str) -> World:
    """Return a world with a checkpoint of its own that writes into the same sinks."""
    other = World(world.config)
    other.job = replace(other.job, lineage=lineage)
    for name, sink in world.sinks.items():
        sharing_parts = zip(other.sinks[name].parts, sink.parts, strict=True)
        other.sinks[name].parts = [share(mine, theirs) for mine, theirs in sharing_parts]
    return other


def share(mine: Part, theirs: Part) -> Part:
    """Share the rows of a part. Its markers and its transactional id belong to the lineage."""
    mine.rows = theirs.rows
    return mine


# --- committers -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Committer:
    """A way to commit.

    Args:
        name: what is broken.
        broken: breaks it while the context is entered; None for the real one.
        scenario: where it shows.
        changes: of the world's configuration.
    """

    name: str
    broken: Callable[[], Any] | None
    scenario: Callable[[WorldConfig, Schedule], Outcome | None] = one_job
    changes: tuple[tuple[str, Any], ...] = ()

    def run(self, schedule: Schedule) -> Outcome | None:
        """Run a schedule; None if a fault cannot happen."""
        return self.scenario(config_of(**dict(self.changes)), schedule)


@contextmanager
def judged_by_the_checker_alone() -> Iterator[None]:
    """Switch the simulation's own invariants off."""
    with ExitStack() as stack:
        for name in ("check", "check_death", "check_commit", "check_seal", "check_sealer"):
            stack.enter_context(patch.object(invariants, name, lambda *_: None))
        yield


def possible_faults(committer: Committer) -> list[Fault]:
    """Return every fault that may happen to the first driver."""
    world = World(config_of(**dict(committer.changes)))
    driver = world.start("D0", last=1 if committer.scenario is moved_job else 0)
    faults = []
    for step in range(MOST_STEPS):
        if not driver.alive:
            break
        kinds = {"crash", "pause", *_KINDS_AT.get(driver.next_step, ())}
        if committer.scenario is not one_job:
            kinds.discard("overwrite")
        faults += [Fault(kind, step, driver.next_step) for kind in kinds]
        driver.step()
    return sorted(faults, key=lambda fault: _KINDS.index(fault.kind))


def search(
    committer: Committer, most_faults: int = MOST_FAULTS
) -> tuple[Schedule, set[str]] | None:
    """Return the first schedule with the fewest faults that has an anomaly, None if there is none."""
    with judged_by_the_checker_alone(), committer.broken() if committer.broken else nullcontext():
        faults = possible_faults(committer)
        for count in range(most_faults + 1):
            if count > 1:  # the second fault meets more if the first driver is still there
                faults.sort(key=lambda fault: fault.kind != "pause")
            for schedule in product(faults, repeat=count):
                outcome = committer.run(schedule)
                if outcome is not None and (kinds := anomalies(outcome)):
                    return schedule, kinds
    return None


def table(committers: tuple[Committer, ...]) -> Iterator[str]:
    """Yield the lines of a table: each committer, the fewest faults that show it, and what is wrong."""
    yield "| broken committer | faults | where | rows are |"
    yield "|---|---|---|---|"
    yield from map(table_row, committers)


def table_row(committer: Committer) -> str:
    """Return the line of a committer."""
    found = search(committer)
    if found is None:
        return f"| {committer.name} | - | not found | - |"
    schedule, kinds = found
    where = "; ".join(f"{f.kind} before `{f.at}`" for f in schedule) or "none needed"
    return f"| {committer.name} | {len(schedule)} | {where} | {', '.join(sorted(kinds))} |"
