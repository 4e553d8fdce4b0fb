"""What is decided about a CheckpointVolume: one row a rule."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluicegate_operator.reconcile.actions import Report
from sluicegate_operator.resources.volume import (
    CheckpointVolumeSpec,
    CheckpointVolumeStatus,
    Retention,
)
from sluicegate_operator.volumes.actions import ForgetTask, RunTask
from sluicegate_operator.volumes.addresses import access_of
from sluicegate_operator.volumes.observed import Volume, VolumeObserved
from sluicegate_operator.volumes.passes import Outcome
from sluicegate_operator.volumes.reading import readiness
from sluicegate_operator.volumes.tasks import (
    Broken,
    Delete,
    Deleted,
    Done,
    Measure,
    Measured,
    Prepare,
    Prepared,
    Prune,
    Pruned,
    Running,
)
from sluicegate_operator.volumes.volume import reconcile_volume

from .made import NOW, acts, condition, reports

URL = "s3://data/sluice"


def spec(**changes: Any) -> CheckpointVolumeSpec:
    """Return a volume of a store of its own."""
    given = {"endpoint": "http://s3:7070", "bucket": "data", "prefix": "sluice", **changes}
    return CheckpointVolumeSpec(**given)


def token(wanted: CheckpointVolumeSpec | None = None, version: str = "") -> str:
    return f"{access_of(wanted or spec())}/{version}"


def fit(**changes: Any) -> CheckpointVolumeStatus:
    """Return the status of a volume that was checked, measured and pruned 100 s ago."""
    given: dict[str, Any] = {
        "phase": "Ready",
        "observed_generation": 1,
        "checked_time": NOW - 100,
        "checked_access": token(),
        "measured_time": NOW - 100,
        "pruned_time": NOW - 100,
        **changes,
    }
    return CheckpointVolumeStatus(**given)


def failing(count: int = 1, **changes: Any) -> CheckpointVolumeStatus:
    """Return the status of a volume whose last check failed just now."""
    given: dict[str, Any] = {
        "phase": "Failed",
        "failures": count,
        "failed": "AccessDenied",
        "last_error": "no",
        "tried_time": NOW - 1,
        "tried_access": token(),
        "next_try_time": NOW + 4,
        **changes,
    }
    return CheckpointVolumeStatus(**given)


def volume(
    wanted: CheckpointVolumeSpec | None = None,
    status: CheckpointVolumeStatus | None = None,
    **changes: Any,
) -> Volume:
    given = {"namespace": "shop", "name": "store", "uid": "u-vol", "generation": 1, **changes}
    return Volume(spec=wanted or spec(), status=status or CheckpointVolumeStatus(), **given)


def seen(**changes: Any) -> VolumeObserved:
    return VolumeObserved(**{"as_of": NOW, **changes})


def decide(a_volume: Volume, observed: VolumeObserved) -> Outcome[CheckpointVolumeStatus]:
    """Return what is decided, after seeing that deciding again changes nothing more."""
    outcome = reconcile_volume(a_volume, observed, NOW)
    again = reconcile_volume(dataclasses.replace(a_volume, status=outcome.status), observed, NOW)
    assert again.status == outcome.status, "not idempotent"
    assert not any(isinstance(action, Report) for action in again.actions), "reported again"
    return outcome


def task_of(outcome: Any) -> Any:
    """Return the one task that is begun."""
    (found,) = [a.task for a in outcome.actions if isinstance(a, RunTask)]
    return found


def prepare(make: bool = False, access: str = "") -> Prepare:  # noqa: FBT001, FBT002 - as short as a row
    return Prepare(URL, make, "us-east-1", access or token())


def broken(kind: str = "AccessDenied", at: float = NOW) -> Broken:
    return Broken(at, kind, "no", "nothing", "mend it")


OWNED = spec(reclaim_policy="Delete")
LEFT: dict[str, Any] = {"deleted_at": NOW - 100, "held": True}


@dataclass(frozen=True)
class Row:
    """A rule: what is there, and what follows; `ready`: status and reason of the condition."""

    rule: str
    volume: Volume
    seen: VolumeObserved
    phase: str
    acts: list[str] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)
    ready: tuple[str, str] | None = None
    status: dict[str, Any] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    wake: float | None = None


CHECKS = (
    Row(
        "a new volume is prepared, its bucket made if need be",
        volume(),
        seen(),
        "Pending",
        ["RunTask"],
        [prepare(make=True)],
        ("False", "Checking"),
    ),
    Row(
        "one check at a time",
        volume(),
        seen(tasks={prepare(make=True): Running(NOW)}),
        "Pending",
    ),
    Row(
        "a check that passed makes it ready, measured and pruned",
        volume(),
        seen(tasks={prepare(make=True): Done(NOW, Prepared(made=True))}),
        "Ready",
        ["RunTask", "RunTask", "ForgetTask"],
        [Measure(URL), Prune(URL, 0, 100)],
        ("True", "Ready"),
        {"checked_time": NOW, "checked_access": token()},
        ["BucketMade", "Ready"],
        wake=600,
    ),
    Row(
        "a check that failed is tried again, later",
        volume(),
        seen(tasks={prepare(make=True): broken()}),
        "Failed",
        ["ForgetTask"],
        [],
        ("False", "AccessDenied"),
        {"failures": 1, "next_try_time": NOW + 5, "last_error": "no; mend it"},
        ["AccessDenied"],
        wake=5,
    ),
    Row(
        "and later still",
        volume(status=failing(3, next_try_time=None)),
        seen(tasks={prepare(make=True): broken()}),
        "Failed",
        ["ForgetTask"],
        status={"failures": 4, "next_try_time": NOW + 40},
        wake=40,
    ),
    Row(
        "at least every five minutes",
        volume(status=failing(30, next_try_time=None)),
        seen(tasks={prepare(make=True): broken()}),
        "Failed",
        ["ForgetTask"],
        status={"next_try_time": NOW + 300},
    ),
    Row(
        "until the time has come it waits",
        volume(status=failing()),
        seen(),
        "Failed",
        wake=4,
    ),
    Row(
        "then it is tried again, and its bucket still made, as it never was there",
        volume(status=failing(next_try_time=NOW)),
        seen(),
        "Failed",
        ["RunTask"],
        [prepare(make=True)],
    ),
    Row(
        "other keys are tried at once",
        volume(status=failing()),
        seen(secret_version="2"),
        "Pending",
        ["RunTask"],
        [prepare(make=True, access=token(version="2"))],
        status={"failures": 0, "last_error": ""},
    ),
    Row(
        "how a check of other keys ended says nothing",
        volume(),
        seen(secret_version="2", tasks={prepare(make=True): broken()}),
        "Pending",
        ["RunTask", "ForgetTask"],
        [prepare(make=True, access=token(version="2"))],
    ),
    Row(
        "a volume with another endpoint is not ready before it was checked",
        volume(spec(endpoint="http://other:7070"), fit()),
        seen(),
        "Pending",
        ["RunTask"],
        [prepare(access=token(spec(endpoint="http://other:7070")))],
        ("False", "Checking"),
    ),
    Row(
        "another quota or retention unsettles nothing",
        volume(spec(quota_bytes=9, retention=Retention(savepoints=3)), fit(), generation=2),
        seen(),
        "Ready",
        status={"observed_generation": 2},
        wake=200,
    ),
    Row(
        "a fit volume is looked at every ten minutes; a bucket that has gone is not made again",
        volume(status=fit(checked_time=NOW - 600)),
        seen(),
        "Ready",
        ["RunTask"],
        [prepare(make=False)],
    ),
    Row(
        "a fit volume whose check fails is not ready any more",
        volume(status=fit()),
        seen(tasks={prepare(): broken("TargetMissing")}),
        "Failed",
        ["ForgetTask"],
        [],
        ("False", "TargetMissing"),
        reports=["TargetMissing"],
    ),
    Row(
        "a Secret that is missing is said, and nothing tried",
        volume(spec(credentials_secret="keys")),
        seen(secret_problem="there is no Secret keys"),
        "Failed",
        ready=("False", "SecretUnreadable"),
        status={"last_error": "there is no Secret keys"},
        reports=["SecretUnreadable"],
    ),
    Row(
        "a clock that went back does not put the next check off",
        volume(status=fit(checked_time=NOW + 9999)),
        seen(),
        "Ready",
        status={"checked_time": NOW},
        wake=200,
    ),
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
        "a deleted one with Retain is let go at once, in use or not",
        volume(status=fit(), **LEFT),
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


@pytest.mark.parametrize("row", [*CHECKS, *UPKEEP, *QUOTA, *GONE], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    outcome = decide(row.volume, row.seen)
    assert outcome.status.phase == row.phase
    assert acts(outcome) == row.acts
    assert reports(outcome) == row.reports
    if row.tasks:
        assert [a.task for a in outcome.actions if isinstance(a, RunTask)] == row.tasks
    if row.ready is not None:
        assert condition(outcome, "Ready") == row.ready
    assert {name: getattr(outcome.status, name) for name in row.status} == row.status
    if row.wake is not None:
        assert outcome.wake_at is not None
        assert outcome.wake_at - NOW == pytest.approx(row.wake, abs=0.01)


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


@pytest.mark.parametrize(
    ("wanted", "status", "ready", "says"),
    [
        (spec(), fit(), True, ""),
        (spec(quota_bytes=5), fit(), True, ""),
        (spec(endpoint="http://other:1"), fit(), False, "has not been checked"),
        (spec(), failing(), False, "AccessDenied: no"),
        (spec(), CheckpointVolumeStatus(), False, "has not been checked"),
        (spec(), fit(phase="Deleting"), False, "is being deleted"),
    ],
)
def test_a_job_is_told_whether_a_volume_is_ready(
    wanted: CheckpointVolumeSpec, status: CheckpointVolumeStatus, ready: object, says: str
) -> None:
    found, said = readiness(wanted, status)
    assert found is ready
    assert says in said
