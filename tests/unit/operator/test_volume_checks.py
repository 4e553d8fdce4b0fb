"""Whether a CheckpointVolume is fit: one row a rule; and what jobs read of it."""

from __future__ import annotations

import pytest

from sluicegate_operator.resources.volume import (
    CheckpointVolumeSpec,
    CheckpointVolumeStatus,
    Retention,
)
from sluicegate_operator.volumes.reading import readiness, usable
from sluicegate_operator.volumes.tasks import (
    Done,
    Measure,
    Prepared,
    Prune,
    Running,
)

from .made import NOW
from .volumes import (
    URL,
    Row,
    broken,
    check,
    failing,
    fit,
    prepare,
    seen,
    spec,
    token,
    volume,
)

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


@pytest.mark.parametrize("row", [*CHECKS], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)


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


@pytest.mark.parametrize(
    ("status", "so"),
    [
        (fit(), True),
        (failing(), False),
        (CheckpointVolumeStatus(), False),
        (fit(phase="Deleting"), True),
        (fit(phase="Deleting", emptied=True), False),
        (fit(phase="Deleting", checked_access="another/1"), False),
    ],
    ids=["ready", "failing", "not checked", "deleted", "emptied", "deleted, of another endpoint"],
)
def test_what_was_begun_on_a_volume_may_be_ended_there(
    status: CheckpointVolumeStatus, *, so: bool
) -> None:
    """Also while it is being deleted, until it is empty."""
    assert usable(spec(), status) is so
