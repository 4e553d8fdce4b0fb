"""Protocols that are broken on purpose: `python -m tests.robustness.validate.broken_protocols`.

Each breaks one rule. The command prints in which of the usual random schedules each is found first.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

import pytest

from sluicegate.protocol import coordinator, job, markers, sealing
from sluicegate.protocol.effects import (
    Apply,
    ApplySteps,
    CreateRecord,
    EpochSteps,
    IsMarkedApplied,
    LatestEpoch,
    LogSteps,
)
from sluicegate.protocol.job import Job, fenced
from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.protocol.record import DecidedEpoch, EpochRecord
from tests.mutation.mutations import Mutant
from tests.mutation.runner import ROOT, code_of
from tests.robustness.model.protocol import simulated_sinks
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.random_schedules import run_schedule
from tests.robustness.model.protocol.test_simulation import MACHINES, SCHEDULES
from tests.robustness.model.protocol.world import World
from tests.robustness.validate import invariants
from tests.robustness.validate.broken_committers import skipping_begun_epochs

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]

# --- how the source of a function is changed -----


@dataclass(frozen=True)
class Edit:
    """A function of the protocol in which one piece of the source is another one.

    Args:
        function: the function, of a module or of a class.
        old: the piece, which the function contains once.
        new: its replacement.
    """

    function: Callable[..., Any]
    old: str
    new: str

    def __call__(self, patch: Patch) -> None:
        """Break the function until the patch ends."""
        patch.setattr(cast("FunctionType", self.function), "__code__", self._code)

    @cached_property
    def _code(self) -> CodeType:
        file = Path(inspect.getfile(self.function))
        source = inspect.getsource(self.function)
        if source.count(self.old) != 1:
            raise ValueError(f"{self.function.__qualname__} does not contain once: {self.old}")
        text = file.read_text().replace(source, source.replace(self.old, self.new))
        name = f"{file.relative_to(ROOT)}:{self.function.__qualname__}: {self.old}"
        return code_of(Mutant(name, 0, self.function.__qualname__, lambda: ast.parse(text)))


# --- one for each law -----


def ignore_marker(_found: Marker | None, **_: object) -> Verdict:
    return Verdict.APPLY


def compares_no_marker(patch: Patch) -> None:
    patch.setattr(markers, "compare_marker", ignore_marker)


def trusts_its_own_record(patch: Patch) -> None:
    """Take what this driver staged for what is decided."""

    def trusting(_job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        yield CreateRecord(record)
        return record

    patch.setattr(coordinator, "_decide", trusting)


def skips_discarded(patch: Patch) -> None:
    """Skip an epoch that is discarded for a sink, where its marker should move."""
    apply_sink = coordinator._apply_sink

    def skipping(*arguments: Any, discard: bool) -> ApplySteps[None]:  # noqa: ANN401 - passed on
        if not discard:
            yield from apply_sink(*arguments, discard=False)

    patch.setattr(coordinator, "_apply_sink", skipping)


def writes_rows_of_another_part(patch: Patch) -> None:
    rows_of = simulated_sinks.rows_of
    patch.setattr(
        simulated_sinks,
        "rows_of",
        lambda record, sink, part, read: rows_of(record, sink, 1 - part, read),
    )


def commits_what_ran_before(patch: Patch) -> None:
    """Take an epoch that was staged before for applied."""
    patch.setattr(coordinator, "run_epoch", skipping_begun_epochs(set()))


def applies_one_epoch_late(patch: Patch) -> None:
    """Apply an epoch when the next one runs, every third one at once."""
    real, apply = coordinator.run_epoch, coordinator.apply
    waiting: list[tuple[Job, DecidedEpoch]] = []

    def later(job: Job, decided: DecidedEpoch) -> ApplySteps[None]:
        waiting.append((job, decided))
        if decided.record.epoch % 3 == 2:
            yield from run_waiting()

    def run_waiting() -> ApplySteps[None]:
        while waiting:
            yield from apply(*waiting.pop(0))

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        yield from run_waiting()
        yield from real(job, epoch)

    patch.setattr(coordinator, "apply", later)
    patch.setattr(coordinator, "run_epoch", run)


def drops_rows(patch: Patch) -> None:
    """Report an epoch as written without its rows."""
    patch.setattr(simulated_sinks, "rows_of", lambda *_: [])


def takes_its_own_record_for_anothers(patch: Patch) -> None:
    decide = coordinator._decide

    def mistaken(job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        stored: EpochRecord = yield from decide(job, record)
        if stored.attempt.endswith("2"):
            raise fenced(stored.epoch, "was decided by another attempt")
        return stored

    patch.setattr(coordinator, "_decide", mistaken)


def writes_discarded_rows(patch: Patch) -> None:
    """Ignore what was discarded when missing epochs are applied to a sink from a backup."""
    patch.setattr(
        coordinator,
        "Apply",
        lambda record, sink, parts, _discard: Apply(record, sink, parts, False),  # noqa: FBT003 - as declared
    )


def compares_no_offsets(patch: Patch) -> None:
    """Do not notice that another driver overwrote the end of an epoch's input in Spark's log."""
    patch.setattr(Driver, "digest", lambda driver, epoch: str(epoch in driver.world.offsets))


def seeds_a_marker_of_nobody(patch: Patch) -> None:
    def nobody(found: Marker | None, *, expected: Marker, **_: object) -> Marker:
        return found or Marker(expected.epoch, "nobody")

    patch.setattr(markers, "marker_to_name", nobody)


def retries_at_most_once(patch: Patch) -> None:
    """Apply a replayed epoch again although it may have been written."""
    real = coordinator.apply
    patch.setattr(
        coordinator, "apply", lambda job, decided: real(job, replace(decided, replayed=False))
    )


def applies_before_it_decides(patch: Patch) -> None:
    decide, real = coordinator._decide, coordinator.run_epoch

    def undecided(_job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        yield LatestEpoch()
        return record

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        decided = yield from real(job, epoch)
        yield from decide(job, decided.record)

    patch.setattr(coordinator, "_decide", undecided)
    patch.setattr(coordinator, "run_epoch", run)


def waits_for_a_mark_of_nobody(patch: Patch) -> None:
    real = coordinator.apply

    def waiting(job: Job, decided: DecidedEpoch) -> ApplySteps[None]:
        yield from real(job, decided)
        while not (yield IsMarkedApplied(decided.record.epoch)):
            pass

    patch.setattr(coordinator, "apply", waiting)


def never_redoes(patch: Patch) -> None:
    def once(_job: Job, effect: Apply) -> ApplySteps[None]:
        yield effect

    patch.setattr(coordinator, "_apply_once", once)


def cleans_applied_epochs(patch: Patch) -> None:
    def clean(world: World, record: EpochRecord) -> None:
        for name in [n for n in world.staged if int(n.split("/")[0]) <= record.epoch]:
            del world.staged[name]

    patch.setattr(World, "prune_after", clean)


def seals_an_unapplied_epoch(patch: Patch) -> None:
    def unchecked(_seal: object) -> Iterator[Any]:
        yield LatestEpoch()

    patch.setattr(sealing, "all_applied", unchecked)


def decides_over_a_seal(patch: Patch) -> None:
    put = World.put

    def put_over(world: World, stored: bytes) -> bool:
        seals, world.seals = world.seals, {}
        try:
            return put(world, stored)
        finally:
            world.seals = seals

    patch.setattr(World, "put", put_over)


BY_LAW: dict[str, Break] = {
    "agreement": trusts_its_own_record,
    "atomicity": skips_discarded,
    "chain": writes_rows_of_another_part,
    "commit of an undecided epoch": commits_what_ran_before,
    "commit of an unapplied epoch": applies_one_epoch_late,
    "conservation": drops_rows,
    "death": takes_its_own_record_for_anothers,
    "discard": writes_discarded_rows,
    "input": compares_no_offsets,
    "marker": seeds_a_marker_of_nobody,
    "once": retries_at_most_once,
    "presumed abort": applies_before_it_decides,
    "progress": waits_for_a_mark_of_nobody,
    "redo": never_redoes,
    "redo log": cleans_applied_epochs,
    "seal that stands": Edit(sealing.seal_after, "newest != seal.epoch", "False"),
    "seal of an unapplied epoch": seals_an_unapplied_epoch,
    "decision after the seal": decides_over_a_seal,
    "change after the seal": compares_no_marker,
}
"""Each breaks its law; `test_each_law` directs a schedule in which no other law shows it."""

# --- mutants of a review -----

_ANY = "yield effects.LatestEpoch()"

EDITS: dict[str, Break] = {
    "no look for later decisions before an epoch is run": Edit(
        coordinator._find_decision,
        'yield from no_later_decision(epoch, "before this epoch was run")',
        _ANY,
    ),
    "no look for later decisions after the own one": Edit(
        coordinator._decide,
        'yield from no_later_decision(record.epoch, "after it was decided")',
        _ANY,
    ),
    "chain not advanced": Edit(coordinator._stage, "previous.chain()", "previous.prev"),
    "chain from the last epoch alone": Edit(
        EpochRecord.chain, "{sink: dict(parts) for sink, parts in self.prev.items()}", "{}"
    ),
    "unanswered request taken for decided": Edit(
        coordinator.create_and_read_back,
        "stored = None",
        'stored = getattr(create, "record", None)',
    ),
    "record before an epoch not verified": Edit(
        coordinator._previous_record, "yield from verify_previous(job, previous)", _ANY
    ),
    "offsets of the record before not compared": Edit(
        job.verify_previous, "yield from _verify_offsets(previous)", _ANY
    ),
    "offsets of a replay not compared": Edit(
        job.verify_record, "yield from _verify_offsets(record)", _ANY
    ),
    "discard ignored": Edit(
        coordinator.apply, "discarded = yield effects.ReadDiscarded", "yield effects.ReadDiscarded"
    ),
    "discard ignored in a redo": Edit(
        coordinator._redo_missing, "redo = Apply(found, sink, (part,), sink in discarded)",
        "redo = Apply(found, sink, (part,), False)",
    ),
    "gives up silently after the last try": Edit(
        coordinator._apply_sink, "failed == job.apply_tries", "failed > job.apply_tries"
    ),
    "redo of a sink that may not be redone": Edit(
        coordinator._apply_once, "effect.sink not in job.redoable", "False"
    ),
    "redo from a record of another attempt": Edit(
        coordinator._redo_missing, "found is None or found.marker != prev", "found is None"
    ),
    "redo in the wrong order": Edit(coordinator._redo_missing, "reversed(missing)", "missing"),
    "absent marker taken for the one before": Edit(
        markers.compare_marker, "(found is None and prev == NO_MARKER)", "found is None"
    ),
    "marker of no epoch taken for an older one": Edit(
        markers.compare_marker, "found is None or found == NO_MARKER != prev", "found is None"
    ),
    "no look for later decisions before a pending apply": Edit(
        coordinator.verified,
        'yield from no_later_decision(record.epoch, "while this driver was paused")',
        _ANY,
    ),
    "seal of another process taken for the own one": Edit(
        sealing.seal_after, "stored.id != seal.id", "False"
    ),
    "commit of an overlapped epoch taken for applied": Edit(
        sealing.all_applied, "applied and record is not None and record.overlapped", "False"
    ),
    "unanswered request taken for a seal": Edit(
        coordinator.create_and_read_back, "stored = None", 'stored = getattr(create, "seal", None)'
    ),
}  # fmt: skip
"""Mutants that a review of the tests wrote, and one for a mistake that a schedule found."""

BROKEN: dict[str, Break] = {f"law: {law}": one for law, one in BY_LAW.items()} | EDITS


# --- the search -----


@dataclass(frozen=True)
class Found:
    """The first of the usual random schedules in which a broken protocol fails."""

    seed: int
    machine: str
    law: str


def law_of(error: Exception) -> str:
    """Return the law that an error names, or its class."""
    law = str(error).partition(":")[0]
    return law if isinstance(error, invariants.InvariantBroken) else type(error).__name__


def first_schedule(broken: Break) -> Found | None:
    """Run the usual random schedules until one fails; None if none does."""
    for seed in range(SCHEDULES):
        for machine in MACHINES:
            with Patch.context() as patch:
                broken(patch)
                try:
                    run_schedule(machine, seed)
                except Exception as error:  # noqa: BLE001 - whatever fails the test of the schedules
                    return Found(seed, machine.__name__, law_of(error))
    return None


def table_row(name: str) -> str:
    """Return the row of a broken protocol in the table of the documentation."""
    found = first_schedule(BROKEN[name])
    if found is None:
        return f"| {name} | not found | |"
    return f"| {name} | {found.seed + 1} | `{found.machine}`, {found.law} |"


def main() -> None:
    """Print a row for each broken protocol."""
    sys.stdout.writelines(f"{table_row(name)}\n" for name in BROKEN)


if __name__ == "__main__":
    main()
