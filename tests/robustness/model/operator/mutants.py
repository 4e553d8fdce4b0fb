"""Operators that are broken on purpose, and how many of them the random search of `test_simulation` finds.

`python -m tests.robustness.model.operator.mutants [NAME...]` prints a line for each mutant: how many
schedules were needed to find it, or that the normal number did not suffice. This is not a test, because
it takes minutes. Directed scenarios in `test_simulation` always catch the mutants that they try.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import cast
from unittest import mock

from sluicegate_operator.api.streaming_job_status import (
    FailureStatus,
    RollbackStatus,
    StableSpecStatus,
)
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.streaming_job import (
    desired_driver,
    driver_lifecycle,
    failures,
    rollback,
    upgrade,
    watchdog,
)
from sluicegate_operator.reconcile.streaming_job.context import JobContext
from sluicegate_operator.reconcile.streaming_job.failures import DISRUPTED, DriverEnd
from tests.robustness.model.operator.random_schedules import run_schedule
from tests.robustness.model.operator.test_simulation import SCHEDULES, Batches, Cluster
from tests.robustness.model.operator.world import World

Mutant = tuple[type[Cluster], object, str, object]

_switch_checkpoint = vars(upgrade)["_switch_checkpoint"]
_complete = vars(rollback)["_complete"]
_failure_reason = vars(rollback)["_failure_reason"]
_record_end = vars(driver_lifecycle)["_record_end"]


def _next_number(context: JobContext, savepoint: str) -> None:
    """Switch to checkpoint n+1 even if that number was used before."""
    context.set(latest_checkpoint_number=context.status.checkpoint.number)
    context.observed = dataclasses.replace(context.observed, pods=())
    _switch_checkpoint(context, savepoint)


def _keep_abandoned_savepoints(context: JobContext, savepoint: str) -> None:
    """Switch to a checkpoint that may be replaced by the old one's savepoint again and again."""
    abandoned = context.status.checkpoint.abandoned_savepoints
    _switch_checkpoint(context, savepoint)
    context.set_checkpoint(abandoned_savepoints=abandoned)


def _keep_sealed_checkpoint(stable: StableSpecStatus, *_: object) -> StableSpecStatus:
    """Roll back to the checkpoint that was sealed."""
    return stable


def _forget_abandoned_savepoints(
    stable: StableSpecStatus, _status: object, number: int, savepoint: str
) -> StableSpecStatus:
    """Forget the savepoints that may seal the stable checkpoint after it was replaced by an empty one."""
    if not savepoint:
        return stable
    checkpoint = dataclasses.replace(
        stable.checkpoint, number=number, restored_from=savepoint, last_epoch=None
    )
    return dataclasses.replace(stable, checkpoint=checkpoint)


def _keep_checkpoint(context: JobContext, rollback_status: RollbackStatus) -> None:
    """Roll back to the spec but not to its checkpoint."""
    checkpoint = context.status.checkpoint
    _complete(context, rollback_status)
    context.set_checkpoint(number=checkpoint.number, restored_from=checkpoint.restored_from)


def _sealed_is_disrupted(code: int, result: str) -> DriverEnd:
    return DriverEnd(DISRUPTED, "DriverFailed", f"{code}: {result}")


def _stopped_is_applied(context: JobContext, pod: Pod, end: DriverEnd) -> None:
    """Take the exit code of SIGTERM for 0."""
    _record_end(context, pod, end)
    if pod.exit_code == 143:
        context.set(all_epochs_applied=True)


def _never_merge(
    _spec: object, failures: tuple[FailureStatus, ...], newest: FailureStatus
) -> tuple[FailureStatus, ...]:
    return (*failures, newest)


def _restart_rollback(context: JobContext) -> str:
    """Roll a spec back again after it is no longer tried."""
    context.set(rollback=None)
    return cast("str", _failure_reason(context))


MUTANTS: dict[str, Mutant] = {
    "absence is confirmed at once": (
        Cluster,
        JobContext,
        "absence_confirmed",
        lambda _context: True,
    ),
    "a status overwrites a newer one": (
        Cluster,
        World,
        "rejects_conflicts",
        property(lambda _w: False, lambda *_: None),
    ),
    "a lost node confirms that the driver is dead": (
        Cluster,
        watchdog,
        "may_replace_on_lost_node",
        lambda _context: True,
    ),
    "an older driver that is alive is ignored": (
        Cluster,
        upgrade,
        "older_attempts_alive",
        lambda _context: (),
    ),
    "a checkpoint number is used again": (Cluster, upgrade, "_switch_checkpoint", _next_number),
    "late savepoints are used again and again": (
        Cluster,
        upgrade,
        "_switch_checkpoint",
        _keep_abandoned_savepoints,
    ),
    "late savepoints are never used": (
        Cluster,
        upgrade,
        "resume_from_late_savepoint",
        lambda _context: None,
    ),
    "a rollback returns to the sealed checkpoint": (
        Cluster,
        upgrade,
        "_stable_spec_after",
        _keep_sealed_checkpoint,
    ),
    "late savepoints of a replaced checkpoint are forgotten": (
        Cluster,
        upgrade,
        "_stable_spec_after",
        _forget_abandoned_savepoints,
    ),
    "a rollback stays on the empty checkpoint": (
        Cluster,
        rollback,
        "_complete",
        _keep_checkpoint,
    ),
    "a rollback does not last": (Cluster, rollback, "_failure_reason", _restart_rollback),
    "Sealed is an ordinary failure": (
        Cluster,
        failures,
        "_classify_exit",
        _sealed_is_disrupted,
    ),
    "a driver that was stopped has applied every epoch": (
        Cluster,
        driver_lifecycle,
        "_record_end",
        _stopped_is_applied,
    ),
    "failures are never merged": (Cluster, failures, "add_failure", _never_merge),
    "a batch is always due": (Batches, desired_driver, "_is_due", lambda _context: True),
    "a finished run is not recorded": (
        Batches,
        driver_lifecycle,
        "_record_end",
        lambda context, _pod, _end: context.set_driver(state="Terminated"),
    ),
}


def search(mutant: Mutant) -> tuple[int, str]:
    """Return how many schedules were run, and the violation that the last one found."""
    machine, target, name, broken = mutant
    with mock.patch.object(target, name, broken):
        for seed in range(SCHEDULES):
            try:
                run_schedule(machine, seed)
            except AssertionError as error:
                return seed + 1, (
                    str(error).splitlines() or ["it comes to rest in the wrong state"]
                )[0][:80]
    return SCHEDULES, ""


def main(names: list[str]) -> None:
    """Print the results for all mutants, or for the given names."""
    for name, mutant in MUTANTS.items():
        if names and name not in names:
            continue
        start = time.process_time()
        schedules, violation = search(mutant)
        result = (
            f"found by schedule {schedules}: {violation}"
            if violation
            else f"not found in {schedules} schedules"
        )
        sys.stdout.write(f"{name}: {result} ({time.process_time() - start:.0f} s)\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
