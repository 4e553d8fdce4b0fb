"""The volume of the simulation: checkpoints, seals, savepoints, and what a batch's runs have done.

A savepoint is taken in three steps, each whenever the simulation likes: its driver is stopped, the
checkpoint is sealed, the resource says Ready. Its own laws are here. Called by `world`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate_operator.reconcile.observed import READY, Pod, Taken
from sluicegate_operator.resources.job_status import RUN, StreamingJobStatus

Run = tuple[float, int]
"""Of a batch: the tick that it is for, and the restartNonce then."""

TOLD_SEALED = 2
"""Drivers that may find one seal without a person's doing: the one that is stopped, and the next."""


class LawBroken(AssertionError):
    """The operator did what it must never do."""


@dataclass
class Savepoint:
    """A Savepoint of an upgrade."""

    attempt: int
    checkpoint: int
    taken: Taken = field(default_factory=lambda: Taken("Pending"))


@dataclass
class Storage:
    """What is on the volume.

    Args:
        begun: checkpoint -> the savepoint with which its first driver began it.
        sealed: checkpoints that are closed.
        savepoints: by name.
        views: the savepoints after each change.
        told: checkpoint -> drivers that were told Sealed since a person last did something.
        done: a batch's runs that have succeeded, by tick and restartNonce.
    """

    begun: dict[int, str] = field(default_factory=dict)
    sealed: set[int] = field(default_factory=set)
    savepoints: dict[str, Savepoint] = field(default_factory=dict)
    views: list[dict[str, Taken]] = field(default_factory=lambda: [{}])
    told: dict[int, int] = field(default_factory=dict)
    done: set[Run] = field(default_factory=set)

    def take(self, name: str, attempt: int, checkpoint: int) -> None:
        """Create a Savepoint; that it exists already is success."""
        self.savepoints.setdefault(name, Savepoint(attempt, checkpoint))
        self.seen()

    def seal(self, name: str) -> None:
        """Close the savepoint's checkpoint: it is copied as it is now."""
        one = self.savepoints[name]
        if one.taken.phase == "Pending":
            self.sealed.add(one.checkpoint)

    def ready(self, name: str) -> None:
        """Let a savepoint be ready, once its checkpoint is sealed."""
        one = self.savepoints[name]
        if one.checkpoint in self.sealed:
            one.taken = Taken(READY)
        self.seen()

    def fail(self, name: str) -> None:
        """Let a savepoint fail, unless it got as far as the seal."""
        one = self.savepoints[name]
        if one.checkpoint not in self.sealed:
            one.taken = Taken("Failed", "disk full")
        self.seen()

    def seen(self) -> None:
        """Let this be seen."""
        self.views.append({name: one.taken for name, one in self.savepoints.items()})

    def driver_begins(self, pod: Pod) -> None:
        """Let a driver open its checkpoint.

        Raises:
            LawBroken: it begins it with something else than the first driver did, or with a
                savepoint that is not there.
        """
        if pod.purpose != RUN:
            return
        begun = self.begun.setdefault(pod.checkpoint_number, pod.restore_from)
        if begun != pod.restore_from:
            raise LawBroken(f"{pod.name} begins with {pod.restore_from!r}, not {begun!r}")
        if begun and self.savepoints[begun].taken.phase != READY:
            raise LawBroken(f"{pod.name} begins with {begun}, which is not ready")

    def driver_told_sealed(self, pod: Pod) -> None:
        """Count a driver that found the seal, and was heard to say so.

        Raises:
            LawBroken: drivers are started again and again on a checkpoint that is closed.
        """
        number = pod.checkpoint_number
        self.told[number] = self.told.get(number, 0) + 1
        if self.told[number] > TOLD_SEALED:
            raise LawBroken(f"checkpoint {number} is sealed, and gets driver after driver")

    def check_moves(self, before: StreamingJobStatus, after: StreamingJobStatus) -> None:
        """Check that a checkpoint that a job begins is new, and that it goes back only by rollback.

        Raises:
            LawBroken: it is not so.
        """
        old, new = before.checkpoint_number, after.checkpoint_number
        if new > old and new in self.begun:
            raise LawBroken(f"checkpoint {new} is begun a second time")
        if new < old and before.rollback is None and after.rollback is None:
            raise LawBroken(f"the checkpoint went back from {old} to {new}")
