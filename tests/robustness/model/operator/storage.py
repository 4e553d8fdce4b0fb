"""The simulated volume: checkpoints, seals, savepoints, and the runs of a batch that have finished.

A savepoint is taken in three steps, each at any time: its driver is stopped, its checkpoint is sealed,
the resource becomes Ready. The invariants of the volume are asserted here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate_operator.api.streaming_job_status import RUN, StreamingJobStatus
from sluicegate_operator.reconcile.observed import READY, Job, Pod, SavepointState

Run = tuple[float, int]
"""A run of a batch: its scheduled time, and the restartNonce at that time."""

MAX_SEALED_DRIVERS = 2
"""How many drivers may find one seal without a user's action: the one that is stopped, and the next."""


class InvariantViolated(AssertionError):
    """The operator violated an invariant."""


@dataclass
class Savepoint:
    """A Savepoint created by an upgrade."""

    attempt: int
    checkpoint: int
    state: SavepointState = field(default_factory=lambda: SavepointState("Pending"))


@dataclass
class Storage:
    """The contents of the volume.

    Args:
        started_from: checkpoint -> the savepoint from which its first driver started.
        sealed: checkpoints that are closed.
        savepoints: by name.
        history: the savepoints after each change.
        sealed_drivers: checkpoint -> drivers that found it sealed since the user's last action.
        finished_runs: the runs of a batch that have succeeded.
        unapplied: checkpoints with a decided epoch that a sink may lack.
    """

    started_from: dict[int, str] = field(default_factory=dict)
    sealed: set[int] = field(default_factory=set)
    savepoints: dict[str, Savepoint] = field(default_factory=dict)
    history: list[dict[str, SavepointState]] = field(default_factory=lambda: [{}])
    sealed_drivers: dict[int, int] = field(default_factory=dict)
    finished_runs: set[Run] = field(default_factory=set)
    unapplied: set[int] = field(default_factory=set)

    def take(self, name: str, attempt: int, checkpoint: int) -> None:
        """Create a Savepoint; an existing one counts as success."""
        self.savepoints.setdefault(name, Savepoint(attempt, checkpoint))
        self.record()

    def seal(self, name: str) -> None:
        """Seal a savepoint's checkpoint; the savepoint has its state at that time."""
        savepoint = self.savepoints[name]
        if savepoint.state.phase == "Pending":
            self.sealed.add(savepoint.checkpoint)
            self.unapplied.discard(savepoint.checkpoint)  # otherwise it is not sealed

    def ready(self, name: str) -> None:
        """Complete a savepoint whose checkpoint is sealed."""
        savepoint = self.savepoints[name]
        if savepoint.checkpoint in self.sealed:
            savepoint.state = SavepointState(READY)
        self.record()

    def fail(self, name: str) -> None:
        """Fail a savepoint whose checkpoint is not sealed."""
        savepoint = self.savepoints[name]
        if savepoint.checkpoint not in self.sealed:
            savepoint.state = SavepointState("Failed", "disk full")
        self.record()

    def record(self) -> None:
        """Record the current state."""
        self.history.append({name: savepoint.state for name, savepoint in self.savepoints.items()})

    def driver_starts(self, pod: Pod) -> None:
        """Open a driver's checkpoint.

        Raises:
            InvariantViolated: it starts from another savepoint than the first driver did, or from one that
                is not ready.
        """
        if pod.mode != RUN:
            return
        started_from = self.started_from.setdefault(pod.checkpoint_number, pod.restore_from)
        if started_from != pod.restore_from:
            raise InvariantViolated(
                f"{pod.name} starts from {pod.restore_from!r} instead of {started_from!r}"
            )
        if started_from and self.savepoints[started_from].state.phase != READY:
            raise InvariantViolated(f"{pod.name} starts from {started_from}, which is not ready")

    def driver_found_seal(self, pod: Pod) -> None:
        """Count a driver that found its checkpoint sealed and reported it.

        Raises:
            InvariantViolated: drivers are started on a closed checkpoint again and again.
        """
        number = pod.checkpoint_number
        self.sealed_drivers[number] = self.sealed_drivers.get(number, 0) + 1
        if self.sealed_drivers[number] > MAX_SEALED_DRIVERS:
            raise InvariantViolated(f"checkpoint {number} is sealed, but drivers are started on it")

    def driver_ended(self, pod: Pod, code: int, message: str) -> None:
        """Record that every decided epoch is applied, if the driver's end proves it."""
        if code == 0 or message.startswith("Sealed: "):
            self.unapplied.discard(pod.checkpoint_number)

    def check_release(self, job: Job, processes: set[str]) -> None:
        """Assert that a job that is released has no driver, and has applied every epoch.

        Raises:
            InvariantViolated: otherwise.
        """
        if processes:
            raise InvariantViolated(f"the job is released while a driver is alive: {processes}")
        number = job.status.checkpoint.number
        if number in self.unapplied and not job.skip_apply:
            raise InvariantViolated(
                f"the job is released with an unapplied epoch in checkpoint {number}"
            )

    def check_checkpoint_change(
        self, before: StreamingJobStatus, after: StreamingJobStatus, *, skip_apply: bool
    ) -> None:
        """Assert that a job's new checkpoint is unused, and that only a rollback returns to an old one.

        No checkpoint is left while a sink may lack an epoch of it. A rollback leaves one that has
        completed no epoch.

        Raises:
            InvariantViolated: otherwise.
        """
        old_number, new_number = before.checkpoint.number, after.checkpoint.number
        if new_number > old_number and old_number in self.unapplied and not skip_apply:
            raise InvariantViolated(f"checkpoint {old_number} is left with an unapplied epoch")
        if new_number > old_number and new_number in self.started_from:
            raise InvariantViolated(f"checkpoint {new_number} is used a second time")
        if new_number < old_number and before.rollback is None and after.rollback is None:
            raise InvariantViolated(
                f"the checkpoint number decreased from {old_number} to {new_number}"
            )
