"""Checks of a CheckpointVolume: one row for each rule; and what jobs derive from its status."""

from __future__ import annotations

import pytest

from sluicegate_operator.api.checkpoint_volume import (
    CheckpointVolumeSpec,
    CheckpointVolumeStatus,
    Retention,
)
from sluicegate_operator.reconcile.readiness import readiness, usable_for_apply
from sluicegate_operator.reconcile.storage_tasks import Done, Measure, Prune, Running, VolumeChecked
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import RuleCase, check
from tests.unit.operator.volume_builders import (
    URL,
    access_digest,
    check_task,
    failed_state,
    failing,
    healthy,
    observed,
    spec,
    volume,
)

CHECKS = (
    RuleCase(
        "a new volume is checked and its bucket may be created",
        volume(),
        observed(),
        "Pending",
        ["RunTask"],
        tasks=[check_task(make_bucket=True)],
        conditions={"Ready": ("False", "Checking")},
    ),
    RuleCase(
        "only one check runs at a time",
        volume(),
        observed(tasks={check_task(make_bucket=True): Running(NOW)}),
        "Pending",
    ),
    RuleCase(
        "a volume that passes its check is ready, measured and pruned",
        volume(),
        observed(
            tasks={check_task(make_bucket=True): Done(NOW, VolumeChecked(bucket_created=True))}
        ),
        "Ready",
        ["RunTask", "RunTask", "ForgetTask"],
        tasks=[Measure(URL), Prune(URL, 0, 100)],
        conditions={"Ready": ("True", "Ready")},
        status={"checked_time": NOW, "checked_access": access_digest()},
        events=["BucketMade", "Ready"],
        requeue_in=600,
    ),
    RuleCase(
        "a failed check is retried after a delay",
        volume(),
        observed(tasks={check_task(make_bucket=True): failed_state()}),
        "Failed",
        ["ForgetTask"],
        conditions={"Ready": ("False", "AccessDenied")},
        status={"failures": 1, "next_retry_time": NOW + 5, "last_error": "no; mend it"},
        events=["AccessDenied"],
        requeue_in=5,
    ),
    RuleCase(
        "the delay between retries doubles",
        volume(status=failing(3, next_retry_time=None)),
        observed(tasks={check_task(make_bucket=True): failed_state()}),
        "Failed",
        ["ForgetTask"],
        status={"failures": 4, "next_retry_time": NOW + 40},
        requeue_in=40,
    ),
    RuleCase(
        "the delay between retries is at most five minutes",
        volume(status=failing(30, next_retry_time=None)),
        observed(tasks={check_task(make_bucket=True): failed_state()}),
        "Failed",
        ["ForgetTask"],
        status={"next_retry_time": NOW + 300},
    ),
    RuleCase(
        "a retry waits until its delay is over",
        volume(status=failing()),
        observed(),
        "Failed",
        requeue_in=4,
    ),
    RuleCase(
        "a bucket that never existed may be created by a retry",
        volume(status=failing(next_retry_time=NOW)),
        observed(),
        "Failed",
        ["RunTask"],
        tasks=[check_task(make_bucket=True)],
    ),
    RuleCase(
        "changed keys are checked at once",
        volume(status=failing()),
        observed(secret_version="2"),
        "Pending",
        ["RunTask"],
        tasks=[check_task(make_bucket=True, access=access_digest(version="2"))],
        status={"failures": 0, "last_error": ""},
    ),
    RuleCase(
        "the result of a check with other keys is ignored",
        volume(),
        observed(secret_version="2", tasks={check_task(make_bucket=True): failed_state()}),
        "Pending",
        ["RunTask", "ForgetTask"],
        tasks=[check_task(make_bucket=True, access=access_digest(version="2"))],
    ),
    RuleCase(
        "a changed endpoint needs a new check",
        volume(spec(endpoint="http://other:7070"), healthy()),
        observed(),
        "Pending",
        ["RunTask"],
        tasks=[check_task(access=access_digest(spec(endpoint="http://other:7070")))],
        conditions={"Ready": ("False", "Checking")},
    ),
    RuleCase(
        "a changed quota or retention needs no new check",
        volume(spec(quota_bytes=9, retention=Retention(savepoints=3)), healthy(), generation=2),
        observed(),
        "Ready",
        status={"observed_generation": 2},
        requeue_in=200,
    ),
    RuleCase(
        "a ready volume is checked every ten minutes without creating its bucket",
        volume(status=healthy(checked_time=NOW - 600)),
        observed(),
        "Ready",
        ["RunTask"],
        tasks=[check_task(make_bucket=False)],
    ),
    RuleCase(
        "a ready volume that fails its check is no longer ready",
        volume(status=healthy()),
        observed(tasks={check_task(): failed_state("TargetMissing")}),
        "Failed",
        ["ForgetTask"],
        conditions={"Ready": ("False", "TargetMissing")},
        events=["TargetMissing"],
    ),
    RuleCase(
        "a missing Secret is reported and nothing is tried",
        volume(spec(credentials_secret="keys")),
        observed(access_problem="there is no Secret keys", access_reason="SecretUnreadable"),
        "Failed",
        conditions={"Ready": ("False", "SecretUnreadable")},
        status={"last_error": "there is no Secret keys"},
        events=["SecretUnreadable"],
    ),
    RuleCase(
        "a clock that was set back does not delay the next check",
        volume(status=healthy(checked_time=NOW + 9999)),
        observed(),
        "Ready",
        status={"checked_time": NOW},
        requeue_in=200,
    ),
    RuleCase(
        "nor the next try after a failed one",
        volume(status=failing(failed_time=NOW + 7200, next_retry_time=NOW + 7205)),
        observed(),
        "Failed",
        status={"failed_time": NOW, "next_retry_time": NOW + 300},
        requeue_in=300,
    ),
)


@pytest.mark.parametrize("case", [*CHECKS], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("volume_spec", "status", "ready", "reason"),
    [
        (spec(), healthy(), True, ""),
        (spec(quota_bytes=5), healthy(), True, ""),
        (spec(endpoint="http://other:1"), healthy(), False, "has not been checked"),
        (spec(), failing(), False, "AccessDenied: no"),
        (spec(), CheckpointVolumeStatus(), False, "has not been checked"),
        (spec(), healthy(phase="Deleting"), False, "is being deleted"),
    ],
)
def test_job_sees_whether_a_volume_is_ready(
    volume_spec: CheckpointVolumeSpec, status: CheckpointVolumeStatus, ready: object, reason: str
) -> None:
    found, message = readiness(volume_spec, status)
    assert found is ready
    assert reason in message


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (healthy(), True),
        (failing(), False),
        (CheckpointVolumeStatus(), False),
        (healthy(phase="Deleting"), True),
        (healthy(phase="Deleting", data_deleted=True), False),
        (healthy(phase="Deleting", checked_access="another/1"), False),
    ],
    ids=["ready", "failing", "not checked", "deleted", "emptied", "deleted, of another endpoint"],
)
def test_decided_epochs_may_be_applied_on_a_volume(
    status: CheckpointVolumeStatus, *, expected: bool
) -> None:
    """This includes a volume that is being deleted, until its data is deleted."""
    assert usable_for_apply(spec(), status) is expected
