"""Maintenance, quota and deletion of a CheckpointVolume: one row for each rule."""

from __future__ import annotations

import pytest

from sluicegate_operator.api.checkpoint_volume import Retention
from sluicegate_operator.reconcile.actions import ForgetTask
from sluicegate_operator.reconcile.storage_tasks import (
    Delete,
    Deleted,
    Done,
    Measure,
    Measured,
    Prune,
    Pruned,
    Running,
)
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import RuleCase, check, condition, decide, event_reasons
from tests.unit.operator.volume_builders import (
    DELETED,
    OWNER,
    OWNING,
    URL,
    failed_state,
    failing,
    healthy,
    observed,
    spec,
    volume,
)

MEASURED = Measured(50, 3, NOW - 7)
MAINTENANCE = (
    RuleCase(
        "a volume is measured every five minutes",
        volume(status=healthy(measured_time=NOW - 300)),
        observed(),
        "Ready",
        ["RunTask"],
        tasks=[Measure(URL)],
    ),
    RuleCase(
        "the measured size is in the status",
        volume(status=healthy()),
        observed(tasks={Measure(URL): Done(NOW, MEASURED)}),
        "Ready",
        ["ForgetTask"],
        status={"bytes": 50, "objects": 3, "measured_time": NOW, "last_epoch_time": NOW - 7},
    ),
    RuleCase(
        "a volume is pruned every hour and knows what to retain",
        volume(spec(retention=Retention(savepoints=3, epochs=50)), healthy(pruned_time=NOW - 3600)),
        observed(referenced_savepoints=("b", "a"), folders_in_progress=("f",)),
        "Ready",
        ["RunTask"],
        tasks=[Prune(URL, 3, 50, ("a", "b"), ("f",))],
    ),
    RuleCase(
        "a volume is not pruned while a Savepoint's status cannot be read: its data is unknown",
        volume(status=healthy(pruned_time=NOW - 3600)),
        observed(unreadable=("nightly",)),
        "Ready",
    ),
    RuleCase(
        "only one pruning runs at a time even if its parameters change",
        volume(status=healthy(pruned_time=NOW - 3600)),
        observed(referenced_savepoints=("b",), tasks={Prune(URL, 0, 100): Running(NOW - 5)}),
        "Ready",
    ),
    RuleCase(
        "pruned savepoints are reported",
        volume(status=healthy(pruned_time=NOW - 3600)),
        observed(tasks={Prune(URL, 0, 100): Done(NOW, Pruned(2, 1, 9))}),
        "Ready",
        ["ForgetTask"],
        status={"pruned_time": NOW},
        events=["Pruned"],
    ),
    RuleCase(
        "a failure is reported and retried, and the volume stays ready",
        volume(status=healthy(measured_time=NOW - 300)),
        observed(tasks={Measure(URL): failed_state("StoreUnavailable")}),
        "Ready",
        ["ForgetTask"],
        conditions={"Ready": ("True", "Ready")},
        status={"maintenance_failed_time": NOW},
        requeue_in=300,
    ),
    RuleCase(
        "a volume that is not ready is not measured",
        volume(status=failing(measured_time=NOW - 9999)),
        observed(),
        "Failed",
    ),
)

FULL = spec(quota_bytes=49)
QUOTA = (
    RuleCase(
        "an exceeded quota is reported",
        volume(FULL, healthy()),
        observed(tasks={Measure(URL): Done(NOW, MEASURED)}),
        "Ready",
        ["ForgetTask"],
        events=["QuotaExceeded"],
    ),
    RuleCase(
        "the quota is not checked before the first measurement",
        volume(FULL, healthy(bytes=50, measured_time=None)),
        observed(tasks={Measure(URL): Running(NOW)}),
        "Ready",
    ),
)

DELETION = (
    RuleCase(
        "reclaimPolicy Delete needs a finalizer",
        volume(OWNING, healthy()),
        observed(),
        "Ready",
        ["AddFinalizer"],
    ),
    RuleCase(
        "reclaimPolicy Retain needs no finalizer",
        volume(status=healthy(), has_finalizer=True),
        observed(),
        "Ready",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "a volume with jobs needs a finalizer so that they can end after its deletion",
        volume(status=healthy()),
        observed(jobs=("clicks",)),
        "Ready",
        ["AddFinalizer"],
    ),
    RuleCase(
        "Retain: a deleted volume waits for its jobs and lists them",
        volume(status=healthy(), **DELETED),
        observed(jobs=("clicks",), savepoints=("daily",)),
        "Deleting",
        conditions={"Ready": ("False", "InUse")},
    ),
    RuleCase(
        "Retain: a deleted volume does not wait for Savepoints, whose data stays",
        volume(status=healthy(), **DELETED),
        observed(savepoints=("daily",)),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "a deleted volume that was never ready has no data of its jobs",
        volume(**DELETED),
        observed(jobs=("clicks",)),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "Delete: a deleted volume waits for its users and lists them",
        volume(OWNING, healthy(), **DELETED),
        observed(jobs=("clicks",), savepoints=("daily",)),
        "Deleting",
        conditions={"Ready": ("False", "InUse")},
    ),
    RuleCase(
        "Delete: a Savepoint alone keeps the data of a deleted volume",
        volume(OWNING, healthy(), **DELETED),
        observed(savepoints=("daily",)),
        "Deleting",
        conditions={"Ready": ("False", "InUse")},
    ),
    RuleCase(
        "Delete: a cache that has seen nothing since the deletion is not trusted",
        volume(OWNING, healthy(), **DELETED),
        observed(as_of=NOW - 90),
        "Deleting",
        conditions={"Ready": ("False", "Deleting")},
    ),
    RuleCase(
        "Delete: a stale cache without users is not trusted",
        volume(OWNING, healthy(), deleted_at=NOW - 10, has_finalizer=True),
        observed(),
        "Deleting",
        conditions={"Ready": ("False", "Deleting")},
        requeue_in=20,
    ),
    RuleCase(
        "Delete: everything below the prefix is deleted",
        volume(OWNING, healthy(), **DELETED),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Delete(URL, OWNER)],
    ),
    RuleCase(
        "Delete: only one deletion runs at a time",
        volume(OWNING, healthy(), **DELETED),
        observed(tasks={Delete(URL, OWNER): Running(NOW)}),
        "Deleting",
    ),
    RuleCase(
        "Delete: the volume is released after its data was deleted",
        volume(OWNING, healthy(phase="Deleting"), **DELETED),
        observed(tasks={Delete(URL, OWNER): Done(NOW, Deleted(9))}),
        "Deleting",
        ["RemoveFinalizer", "ForgetTask"],
        status={"data_deleted": True},
        events=["Emptied"],
    ),
    RuleCase(
        "Delete: the volume is released if its status says that the data was deleted",
        volume(OWNING, healthy(phase="Deleting", data_deleted=True), **DELETED),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "Delete: a failed deletion is retried and reported with the way out",
        volume(OWNING, healthy(phase="Deleting"), **DELETED),
        observed(tasks={Delete(URL, OWNER): failed_state("StoreUnavailable")}),
        "Deleting",
        ["ForgetTask"],
        conditions={"Ready": ("False", "StoreUnavailable")},
        status={"next_retry_time": NOW + 5},
        events=["DeletionFailed"],
        requeue_in=5,
    ),
    RuleCase(
        "Delete: the data of a volume that was never ready is deleted too: its check may have run",
        volume(OWNING, failing(), **DELETED),
        observed(),
        "Deleting",
        ["RunTask"],
    ),
    RuleCase(
        "Delete: a volume that was never ready is released when that fails",
        volume(OWNING, failing(phase="Deleting"), **DELETED),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "Delete: a volume that was never ready is released without its Secret",
        volume(OWNING, failing(), **DELETED),
        observed(access_problem="there is no Secret keys", access_reason="SecretUnreadable"),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "Delete: an unreadable Secret is waited for",
        volume(OWNING, healthy(), **DELETED),
        observed(access_problem="there is no Secret keys", access_reason="SecretUnreadable"),
        "Deleting",
        conditions={"Ready": ("False", "SecretUnreadable")},
    ),
)


@pytest.mark.parametrize("case", [*MAINTENANCE, *QUOTA, *DELETION], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_exceeded_quota_is_reported_once() -> None:
    status, warned = healthy(measured_time=None), []
    for i, size in enumerate((50, 60, 40, 50)):
        tasks = {Measure(URL): Done(NOW - 50 + i, Measured(size, 1))}
        outcome = decide(volume(FULL, status), observed(tasks=tasks))
        status = outcome.status
        warned.append("QuotaExceeded" in event_reasons(outcome))
    assert warned == [True, False, False, True]


def test_removed_quota_removes_its_condition() -> None:
    status = decide(volume(FULL, healthy(bytes=50)), observed()).status
    after = decide(volume(status=status), observed()).status
    assert "WithinQuota" not in {one.type for one in after.conditions}


def test_maintenance_is_healthy_again_after_a_success() -> None:
    failed = decide(
        volume(status=healthy()), observed(tasks={Measure(URL): failed_state(at=NOW - 1)})
    ).status
    after = decide(volume(status=failed), observed(tasks={Measure(URL): Done(NOW, MEASURED)}))
    assert condition(after, "Maintenance") == ("True", "Healthy")


def test_ended_tasks_are_forgotten_and_running_ones_are_not() -> None:
    tasks = {Measure(URL): Done(NOW, MEASURED), Prune(URL, 0, 100): Running(NOW)}
    outcome = decide(volume(status=healthy()), observed(tasks=tasks))
    assert [a.task for a in outcome.actions if isinstance(a, ForgetTask)] == [Measure(URL)]
