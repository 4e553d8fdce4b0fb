"""Operators that are broken on purpose, and how many the random search of `test_simulation` finds.

`python -m tests.unit.operator.mutants [NAME...]` prints a line for each: how many walks it took to find it, or
that none of the normal number did. Not a test: it takes minutes. The mutants that `test_simulation`
tries are caught by scenes, each time.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any, cast
from unittest import mock

from sluicegate_operator.reconcile import drivers, ends, limits, rollback, upgrades, wishes
from sluicegate_operator.reconcile.ends import DISRUPTED, End
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.resources.job_status import FailureStatus, GoodStatus

from .test_simulation import WALKS, Batches, Cluster
from .walks import walk
from .world import World

Mutant = tuple[type[Cluster], object, str, object]

_begin_checkpoint = vars(upgrades)["_begin_checkpoint"]
_arrive = vars(rollback)["_arrive"]
_why = vars(rollback)["_why_given_up"]


def _next_number(p: Pass, savepoint: str) -> None:
    """Begin checkpoint n+1, though that number may have been given before."""
    p.set(newest_checkpoint=p.status.checkpoint_number)
    p.observed = dataclasses.replace(p.observed, pods=())
    _begin_checkpoint(p, savepoint)


def _remember_given_up(p: Pass, savepoint: str) -> None:
    """Begin a checkpoint that is rescued by the old one's savepoint again and again."""
    given_up = p.status.given_up
    _begin_checkpoint(p, savepoint)
    p.set(given_up=given_up)


def _stay(good: GoodStatus, *_: object) -> GoodStatus:
    """Go back to the checkpoint that was sealed."""
    return good


def _forgetful(good: GoodStatus, _status: object, number: int, savepoint: str) -> GoodStatus:
    """Forget what may seal the good checkpoint yet, when it is left for an empty one."""
    if not savepoint:
        return good
    return dataclasses.replace(good, checkpoint_number=number, restored_from=savepoint, epoch=None)


def _same_checkpoint(p: Pass, back: Any) -> None:
    """Go back to the spec, and not to its checkpoint."""
    number, restored = p.status.checkpoint_number, p.status.restored_from
    _arrive(p, back)
    p.set(checkpoint_number=number, restored_from=restored)


def _sealed_is_disrupted(code: int, said: str) -> End:
    return End(DISRUPTED, "DriverFailed", f"{code}: {said}")


def _keep_all(
    _spec: object, failures: tuple[FailureStatus, ...], newest: FailureStatus
) -> tuple[FailureStatus, ...]:
    return (*failures, newest)


def _never_arrives(p: Pass) -> str:
    """Give a spec up again when it is tried no more."""
    p.set(rollback=None)
    return cast("str", _why(p))


MUTANTS: dict[str, Mutant] = {
    "absence is believed at once": (Cluster, Pass, "believes_absence", lambda _p: True),
    "a status is written over a newer one": (
        Cluster,
        World,
        "guarded",
        property(lambda _w: False, lambda *_: None),
    ),
    "a silent node is proof of death": (Cluster, limits, "may_replace_silent", lambda _p: True),
    "an older driver that lives is no hindrance": (
        Cluster,
        upgrades,
        "others_alive",
        lambda _p: (),
    ),
    "a checkpoint's number is given again": (Cluster, upgrades, "_begin_checkpoint", _next_number),
    "a rescue is not bounded": (Cluster, upgrades, "_begin_checkpoint", _remember_given_up),
    "no rescue": (Cluster, upgrades, "rescue", lambda _p: None),
    "a rollback goes to the sealed checkpoint": (Cluster, upgrades, "_good_after", _stay),
    "a left checkpoint's late savepoint is forgotten": (
        Cluster,
        upgrades,
        "_good_after",
        _forgetful,
    ),
    "a rollback stays on a stateless checkpoint": (Cluster, rollback, "_arrive", _same_checkpoint),
    "a rollback does not last": (Cluster, rollback, "_why_given_up", _never_arrives),
    "Sealed is a failure like others": (Cluster, ends, "_failed", _sealed_is_disrupted),
    "all failures are kept": (Cluster, drivers, "remembered", _keep_all),
    "a batch is always due": (Batches, wishes, "_due", lambda _p: True),
    "a run that is done is not written down": (
        Batches,
        drivers,
        "_account",
        lambda p, _pod, _end: p.set_driver(state="Ended"),
    ),
}


def found(mutant: Mutant) -> tuple[int, str]:
    """Return how many walks were taken, and what the last one found."""
    machine, target, name, broken = mutant
    with mock.patch.object(target, name, broken):
        for seed in range(WALKS):
            try:
                walk(machine, seed)
            except AssertionError as error:
                return seed + 1, (str(error).splitlines() or ["it rests in the wrong state"])[0][
                    :80
                ]
    return WALKS, ""


def main(names: list[str]) -> None:
    """Print what is found of each mutant, or of those that are named."""
    for name, mutant in MUTANTS.items():
        if names and name not in names:
            continue
        began = time.process_time()
        walks, what = found(mutant)
        said = f"walk {walks}: {what}" if what else f"not found in {walks}"
        sys.stdout.write(f"{name}: {said} ({time.process_time() - began:.0f} s)\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
