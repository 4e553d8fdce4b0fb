"""How a CheckpointVolume is kept, and what becomes of its data: one row a rule."""

from __future__ import annotations

import pytest

from sluicegate_operator.resources.volume import (
    Retention,
)
from sluicegate_operator.volumes.actions import ForgetTask
from sluicegate_operator.volumes.tasks import (
    Delete,
    Deleted,
    Done,
    Measure,
    Measured,
    Prune,
    Pruned,
    Running,
)

from .made import NOW, condition, reports
from .volumes import (
    LEFT,
    OWNED,
    URL,
    Row,
    broken,
    check,
    decide,
    failing,
    fit,
    seen,
    spec,
    volume,
)

MEASURED = Measured(50, 3, NOW - 7)
UPKEEP = (
    Row(
        "it is measured every five minutes",
        volume(status=fit(measured_time=NOW - 300)),
        seen(),
        "Ready",
        ["RunTask"],
        [Measure(URL)],
    ),
    Row(
        "what was measured is in the status",
        volume(status=fit()),
        seen(tasks={Measure(URL): Done(NOW, MEASURED)}),
        "Ready",
        ["ForgetTask"],
        status={"bytes": 50, "objects": 3, "measured_time": NOW, "last_epoch_time": NOW - 7},
    ),
    Row(
        "it is pruned every hour, and told what must stay",
        volume(spec(retention=Retention(savepoints=3, epochs=50)), fit(pruned_time=NOW - 3600)),
        seen(named=("b", "a"), busy=("f",)),
        "Ready",
        ["RunTask"],
        [Prune(URL, 3, 50, ("a", "b"), ("f",))],
    ),
    Row(
        "one pruning at a time, whatever changes meanwhile",
        volume(status=fit(pruned_time=NOW - 3600)),
        seen(named=("b",), tasks={Prune(URL, 0, 100): Running(NOW - 5)}),
        "Ready",
    ),
    Row(
        "savepoints that were pruned are reported",
        volume(status=fit(pruned_time=NOW - 3600)),
        seen(tasks={Prune(URL, 0, 100): Done(NOW, Pruned(2, 1, 9))}),
        "Ready",
        ["ForgetTask"],
        status={"pruned_time": NOW},
        reports=["Pruned"],
    ),
    Row(
        "a failure is said, makes the volume no less fit, and is tried again in five minutes",
        volume(status=fit(measured_time=NOW - 300)),
        seen(tasks={Measure(URL): broken("StoreUnavailable")}),
        "Ready",
        ["ForgetTask"],
        [],
        ("True", "Ready"),
        {"upkeep_failed_time": NOW},
        wake=300,
    ),
    Row(
        "a volume that is not fit is not measured",
        volume(status=failing(measured_time=NOW - 9999)),
        seen(),
        "Failed",
    ),
)

FULL = spec(quota_bytes=49)
QUOTA = (
    Row(
        "more than the quota is warned about",
        volume(FULL, fit()),
        seen(tasks={Measure(URL): Done(NOW, MEASURED)}),
        "Ready",
        ["ForgetTask"],
        reports=["QuotaExceeded"],
    ),
    Row(
        "and not before anything was measured",
        volume(FULL, fit(bytes=50, measured_time=None)),
        seen(tasks={Measure(URL): Running(NOW)}),
        "Ready",
    ),
)

GONE = (
    Row(
        "a volume that is to be emptied is held",
        volume(OWNED, fit()),
        seen(),
        "Ready",
        ["AddFinalizer"],
    ),
    Row(
        "one that is to be retained is not",
        volume(status=fit(), held=True),
        seen(),
        "Ready",
        ["RemoveFinalizer"],
    ),
    Row(
        "one that jobs are on is, so that they can end after it was deleted",
        volume(status=fit()),
        seen(jobs=("clicks",)),
        "Ready",
        ["AddFinalizer"],
    ),
    Row(
        "a deleted one with Retain waits for its jobs, and names them",
        volume(status=fit(), **LEFT),
        seen(jobs=("clicks",), savepoints=("daily",)),
        "Deleting",
        ready=("False", "InUse"),
    ),
    Row(
        "it does not wait for Savepoints, whose data stays",
        volume(status=fit(), **LEFT),
        seen(savepoints=("daily",)),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "one that was never fit holds nothing of its jobs'",
        volume(**LEFT),
        seen(jobs=("clicks",)),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "with Delete it waits for its users, and names them",
        volume(OWNED, fit(), **LEFT),
        seen(jobs=("clicks",), savepoints=("daily",)),
        "Deleting",
        ready=("False", "InUse"),
    ),
    Row(
        "an old view is not believed when it shows no user",
        volume(OWNED, fit(), deleted_at=NOW - 10, held=True),
        seen(),
        "Deleting",
        ready=("False", "Deleting"),
        wake=20,
    ),
    Row(
        "then everything below the prefix is deleted",
        volume(OWNED, fit(), **LEFT),
        seen(),
        "Deleting",
        ["RunTask"],
        [Delete(URL)],
    ),
    Row(
        "once at a time",
        volume(OWNED, fit(), **LEFT),
        seen(tasks={Delete(URL): Running(NOW)}),
        "Deleting",
    ),
    Row(
        "then it is let go",
        volume(OWNED, fit(phase="Deleting"), **LEFT),
        seen(tasks={Delete(URL): Done(NOW, Deleted(9))}),
        "Deleting",
        ["RemoveFinalizer", "ForgetTask"],
        status={"emptied": True},
        reports=["Emptied"],
    ),
    Row(
        "also if that was written, and not done, before",
        volume(OWNED, fit(phase="Deleting", emptied=True), **LEFT),
        seen(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "a deletion that fails is tried again, and says the way past",
        volume(OWNED, fit(phase="Deleting"), **LEFT),
        seen(tasks={Delete(URL): broken("StoreUnavailable")}),
        "Deleting",
        ["ForgetTask"],
        [],
        ("False", "StoreUnavailable"),
        {"next_try_time": NOW + 5},
        ["DeletionFailed"],
        wake=5,
    ),
    Row(
        "one that was never fit holds nothing of ours, and is let go",
        volume(OWNED, failing(), **LEFT),
        seen(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "keys that have gone are waited for",
        volume(OWNED, fit(), **LEFT),
        seen(secret_problem="there is no Secret keys"),
        "Deleting",
        ready=("False", "SecretUnreadable"),
    ),
)


@pytest.mark.parametrize("row", [*UPKEEP, *QUOTA, *GONE], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)


def test_a_quota_is_warned_about_once_a_crossing() -> None:
    status, told = fit(measured_time=None), []
    for i, size in enumerate((50, 60, 40, 50)):
        observed = seen(tasks={Measure(URL): Done(NOW - 50 + i, Measured(size, 1))})
        outcome = decide(volume(FULL, status), observed)
        status = outcome.status
        told.append("QuotaExceeded" in reports(outcome))
    assert told == [True, False, False, True]


def test_a_quota_that_is_dropped_says_nothing_any_more() -> None:
    status = decide(volume(FULL, fit(bytes=50)), seen()).status
    after = decide(volume(status=status), seen()).status
    assert "WithinQuota" not in {one.type for one in after.conditions}


def test_upkeep_is_well_again_after_a_success() -> None:
    failed = decide(volume(status=fit()), seen(tasks={Measure(URL): broken(at=NOW - 1)})).status
    after = decide(volume(status=failed), seen(tasks={Measure(URL): Done(NOW, MEASURED)}))
    assert condition(after, "Upkeep") == ("True", "Well")


def test_what_ended_is_forgotten_and_what_runs_is_not() -> None:
    tasks = {Measure(URL): Done(NOW, MEASURED), Prune(URL, 0, 100): Running(NOW)}
    outcome = decide(volume(status=fit()), seen(tasks=tasks))
    assert [a.task for a in outcome.actions if isinstance(a, ForgetTask)] == [Measure(URL)]
