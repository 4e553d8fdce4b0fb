"""CheckpointVolumes at the edges of their rules: one row for each rule, and the text of messages."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeStatus
from sluicegate_operator.api.codec import API, parse
from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import Volume, VolumeObserved
from sluicegate_operator.reconcile.storage_tasks import (
    Delete,
    Done,
    FailedTask,
    Measure,
    Measured,
    Prune,
    Pruned,
    VolumeChecked,
)
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.volume_builders import (
    DELETED,
    OWNER,
    OWNING,
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

NO_SECRET: dict[str, Any] = {
    "access_problem": "there is no Secret keys",
    "access_reason": "SecretUnreadable",
}
PASSED = Done(NOW, VolumeChecked(bucket_created=False))
FULL = spec(quota_bytes=50)
PRUNE = Prune(URL, 0, 100)


def maintained(status: str, reason: str = "Some", **changes: Any) -> CheckpointVolumeStatus:
    """Return the status of a ready volume with the condition Maintenance, since 100 s ago."""
    since = NOW - 100
    maintenance = Condition(
        type="Maintenance", status=status, reason=reason, last_transition_time=since
    )
    return healthy(
        **{"conditions": (maintenance,), "maintenance_failed_time": since, **changes},
    )


CHECKS = (
    RuleCase(
        "a field of the spec that this release does not know is reported",
        volume(status=healthy(), ignored_fields=("spec.color",)),
        observed(),
        "Ready",
        conditions={"Accepted": ("True", "UnknownFieldsIgnored")},
    ),
    RuleCase(
        "a missing Secret is read again after half a minute",
        volume(),
        observed(**NO_SECRET),
        "Failed",
        events=["SecretUnreadable"],
        requeue_in=30,
    ),
    RuleCase(
        "a Secret that is there again is no longer reported as missing",
        volume(
            status=healthy(
                phase="Failed", failure_reason="SecretUnreadable", last_error="there is no Secret"
            )
        ),
        observed(),
        "Ready",
        status={"failure_reason": "", "last_error": ""},
        events=["Ready"],
    ),
    RuleCase(
        "a bucket that existed before is not reported as created",
        volume(),
        observed(tasks={check_task(make_bucket=True): PASSED}),
        "Ready",
        ["RunTask", "RunTask", "ForgetTask"],
        events=["Ready"],
    ),
    RuleCase(
        "failures with earlier keys do not delay a retry with new ones",
        volume(status=failing(3, failed_access=access_digest(version="old"))),
        observed(tasks={check_task(make_bucket=True): failed_state()}),
        "Failed",
        ["ForgetTask"],
        status={"failures": 1, "next_retry_time": NOW + 5},
    ),
    RuleCase(
        "a volume whose status lacks the time of its check is checked at once",
        volume(status=healthy(checked_time=None)),
        observed(),
        "Ready",
        ["RunTask"],
        tasks=[check_task(make_bucket=True)],
    ),
)

MAINTENANCE = (
    RuleCase(
        "of two failures the newest one delays the next try",
        volume(status=healthy(measured_time=NOW - 300, pruned_time=NOW - 3600)),
        observed(tasks={Measure(URL): failed_state(), PRUNE: failed_state(at=NOW - 50)}),
        "Ready",
        ["ForgetTask", "ForgetTask"],
        status={"maintenance_failed_time": NOW},
        conditions={"Maintenance": ("False", "PruningFailed")},
        requeue_in=300,
    ),
    RuleCase(
        "a failure delays no maintenance after a success",
        volume(status=maintained("True", pruned_time=NOW - 3600)),
        observed(),
        "Ready",
        ["RunTask"],
        tasks=[PRUNE],
    ),
    RuleCase(
        "an older measurement does not replace a newer one",
        volume(status=healthy(bytes=70, measured_time=NOW - 1)),
        observed(tasks={Measure(URL): Done(NOW - 9, Measured(50, 3))}),
        "Ready",
        ["ForgetTask"],
        status={"bytes": 70, "measured_time": NOW - 1},
    ),
    RuleCase(
        "maintenance is healthy again after a volume was pruned",
        volume(status=maintained("False")),
        observed(tasks={PRUNE: Done(NOW, Pruned(0, 0, 0))}),
        "Ready",
        ["ForgetTask"],
        conditions={"Maintenance": ("True", "Healthy")},
    ),
    RuleCase(
        "a measurement hides no failure of pruning",
        volume(status=maintained("False", "PruningFailed")),
        observed(tasks={Measure(URL): Done(NOW, Measured(50, 3))}),
        "Ready",
        ["ForgetTask"],
        conditions={"Maintenance": ("False", "PruningFailed")},
    ),
    RuleCase(
        "a failure of measuring hides no failure of pruning, which only a pruning ends",
        volume(status=maintained("False", "PruningFailed")),
        observed(tasks={Measure(URL): failed_state()}),
        "Ready",
        ["ForgetTask"],
        status={"maintenance_failed_time": NOW},
        conditions={"Maintenance": ("False", "PruningFailed")},
    ),
    RuleCase(
        "a pruning ends a failure of pruning, also if a measurement failed after it",
        volume(status=maintained("False", "PruningFailed")),
        observed(
            tasks={PRUNE: Done(NOW - 10, Pruned(0, 0, 0)), Measure(URL): failed_state(at=NOW - 5)}
        ),
        "Ready",
        ["ForgetTask", "ForgetTask"],
        status={"pruned_time": NOW - 10, "maintenance_failed_time": NOW - 5},
        conditions={"Maintenance": ("False", "MeasuringFailed")},
    ),
    RuleCase(
        "a pruning ends a failure of pruning",
        volume(status=maintained("False", "PruningFailed")),
        observed(tasks={PRUNE: Done(NOW, Pruned(0, 0, 0))}),
        "Ready",
        ["ForgetTask"],
        conditions={"Maintenance": ("True", "Healthy")},
    ),
    RuleCase(
        "a pruning hides no failure of measuring",
        volume(status=maintained("False", "MeasuringFailed")),
        observed(tasks={PRUNE: Done(NOW, Pruned(0, 0, 0))}),
        "Ready",
        ["ForgetTask"],
        conditions={"Maintenance": ("False", "MeasuringFailed")},
    ),
    RuleCase(
        "maintenance is not healthy because of what succeeded before the failure",
        volume(status=maintained("False", maintenance_failed_time=NOW - 10)),
        observed(tasks={Measure(URL): Done(NOW - 20, Measured(50, 3))}),
        "Ready",
        ["ForgetTask"],
        conditions={"Maintenance": ("False", "Some")},
    ),
    RuleCase(
        "a failure that was recorded before hides no later success",
        volume(status=maintained("True", "Healthy")),
        observed(tasks={Measure(URL): failed_state(at=NOW - 100)}),
        "Ready",
        ["ForgetTask"],
        conditions={"Maintenance": ("True", "Healthy")},
    ),
    RuleCase(
        "a quota may be used up to the last byte",
        volume(FULL, healthy(bytes=50)),
        observed(),
        "Ready",
        conditions={"WithinQuota": ("True", "Within")},
    ),
)

DELETION = (
    RuleCase(
        "Delete: without the finalizer of the operator no data is deleted",
        volume(OWNING, healthy(), deleted_at=NOW - 100),
        observed(),
        "Deleting",
    ),
    RuleCase(
        "a volume that is released is not ready",
        volume(status=healthy(), **DELETED),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
        conditions={"Ready": ("False", "Deleting")},
    ),
    RuleCase(
        "Delete: a list of jobs that is half a minute newer than the deletion is trusted",
        volume(OWNING, healthy(), deleted_at=NOW - 30, has_finalizer=True),
        observed(),
        "Deleting",
        ["RunTask"],
    ),
    RuleCase(
        "Delete: a failed deletion is tried again once its delay is over",
        volume(OWNING, healthy(phase="Deleting", failures=1, next_retry_time=NOW), **DELETED),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Delete(URL, OWNER)],
    ),
)


@pytest.mark.parametrize("case", [*CHECKS, *MAINTENANCE, *DELETION], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_volume_whose_maintenance_never_failed_has_no_condition_of_it() -> None:
    tasks = {Measure(URL): Done(NOW, Measured(50, 3))}
    status = decide(volume(status=healthy()), observed(tasks=tasks)).status
    assert "Maintenance" not in {one.type for one in status.conditions}


@pytest.mark.parametrize(
    ("pruned", "reported"),
    [(Pruned(0, 0, 9), False), (Pruned(2, 0, 9), True), (Pruned(0, 1, 9), True)],
    ids=["only epochs", "a savepoint", "an unfinished savepoint"],
)
def test_each_deleted_savepoint_is_reported(pruned: Pruned, *, reported: bool) -> None:
    outcome = decide(volume(status=healthy()), observed(tasks={PRUNE: Done(NOW, pruned)}))
    assert [one.reason for one in outcome.actions if isinstance(one, EmitEvent)] == (
        ["Pruned"] if reported else []
    )


@pytest.mark.parametrize(
    ("resource", "seen"),
    [
        (volume(), observed(tasks={check_task(make_bucket=True): failed_state()})),
        (volume(FULL, healthy(bytes=51)), observed()),
        (
            volume(OWNING, healthy(phase="Deleting"), **DELETED),
            observed(tasks={Delete(URL, OWNER): failed_state()}),
        ),
    ],
    ids=["a failed check", "an exceeded quota", "a failed deletion"],
)
def test_what_needs_a_person_is_a_warning(resource: Volume, seen: VolumeObserved) -> None:
    (event,) = [one for one in decide(resource, seen).actions if isinstance(one, EmitEvent)]
    assert event.warning


@pytest.mark.parametrize(
    ("users", "listed"),
    [(5, "job-4; "), (6, "job-4 and 1 more; "), (7, "job-4 and 2 more; ")],
)
def test_five_users_of_a_deleted_volume_are_listed_and_the_others_are_counted(
    users: int, listed: str
) -> None:
    names = tuple(f"job-{i}" for i in range(users))
    assert listed in wait_message(
        decide(volume(OWNING, healthy(), **DELETED), observed(jobs=names))
    )


def test_retained_volume_lists_no_savepoints_as_its_users() -> None:
    """Their data stays, so nobody needs to delete them first."""
    seen = observed(jobs=("clicks",), savepoints=("daily",))
    assert "daily" not in wait_message(decide(volume(status=healthy(), **DELETED), seen))


LATE = NOW + 0.123456
"""A time that no status can hold."""


@pytest.mark.parametrize(
    ("status", "tasks"),
    [
        (None, {}),
        (None, {check_task(make_bucket=True): Done(LATE, VolumeChecked(bucket_created=False))}),
        (None, {check_task(make_bucket=True): FailedTask(LATE, "AccessDenied", "no")}),
        (healthy(), {Measure(URL): Done(LATE, Measured(50, 3, LATE - 9))}),
        (healthy(), {Measure(URL): FailedTask(LATE, "StoreUnavailable", "no")}),
        (healthy(), {PRUNE: Done(LATE, Pruned(0, 0, 0))}),
    ],
    ids=["new", "checked", "failed", "measured", "not measured", "pruned"],
)
def test_status_is_read_as_it_was_written(
    status: CheckpointVolumeStatus | None, tasks: dict[Any, Any]
) -> None:
    """Otherwise it would differ from what was read, and be written again and again."""
    after = decide(volume(status=status), observed(tasks=tasks), LATE + 1).status
    assert parse(CheckpointVolumeStatus, API.render(after), "status") == after


def wait_message(outcome: Any) -> str:
    """Return what a volume that is not ready waits for."""
    (ready,) = [one for one in outcome.status.conditions if one.type == "Ready"]
    return str(ready.message)
