"""Savepoints, views and rows for the tests of `reconcile_savepoint`. Called by them only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluicegate_operator.reconcile.actions import Report
from sluicegate_operator.resources.job import Schedule
from sluicegate_operator.resources.job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.resources.savepoint import (
    SavepointSpec,
    SavepointStatus,
    TakenStatus,
)
from sluicegate_operator.resources.volume import CheckpointVolumeSpec
from sluicegate_operator.volumes.actions import RunTask
from sluicegate_operator.volumes.observed import (
    JobView,
    Savepoint,
    SavepointObserved,
    VolumeView,
)
from sluicegate_operator.volumes.passes import Outcome
from sluicegate_operator.volumes.savepoint import reconcile_savepoint
from sluicegate_operator.volumes.tasks import (
    BESIDE,
    Broken,
    SavepointTaken,
    Take,
)

from . import made
from .made import NOW, acts, alive, condition, reports

URL = "s3://data/sluice"
CHECKPOINT = f"{URL}/clicks/1"
FOLDER = f"{URL}/savepoints/clicks/move/u-savepo"
HOURLY = Schedule(cron="0 * * * *")


def spec(**changes: Any) -> SavepointSpec:
    return SavepointSpec(**{"job": "clicks", **changes})


def savepoint(
    wanted: SavepointSpec | None = None, status: SavepointStatus | None = None, **changes: Any
) -> Savepoint:
    """Return a Savepoint that was made half an hour ago and seen since."""
    given = {
        "namespace": "shop",
        "name": "move",
        "uid": "u-savepoint",
        "generation": 1,
        "created_at": NOW - 1800,
        **changes,
    }
    was = status or SavepointStatus(observed_generation=1)
    return Savepoint(spec=wanted or spec(), status=was, **given)


def job(status: StreamingJobStatus | None = None, **changes: Any) -> JobView:
    return JobView("clicks", "u-job", made.spec(), status or alive(), **changes)


def store(name: str = "store", *, ready: bool = True, **changes: Any) -> VolumeView:
    given = {"endpoint": "http://s3:7070", "bucket": "data", "prefix": "sluice", **changes}
    return VolumeView(name, CheckpointVolumeSpec(**given), ready, "" if ready else "no keys")


def seen(a_job: JobView | None = None, *volumes: VolumeView, **changes: Any) -> SavepointObserved:
    """Return a view of a running job and its ready volume."""
    by_name = {one.name: one for one in volumes or (store(),)}
    return SavepointObserved(**{"job": a_job or job(), "volumes": by_name, **changes})


def taking(**changes: Any) -> SavepointStatus:
    """Return the status of a Savepoint that is being taken."""
    return SavepointStatus(
        **{"phase": "Taking", "folder": FOLDER, "observed_generation": 1, **changes}
    )


def one(name: str = "a", **changes: Any) -> TakenStatus:
    given = {"location": f"{FOLDER}/{name}", "epoch": 7, "taken_time": NOW - 9, **changes}
    return TakenStatus(**given)


def ready(**changes: Any) -> SavepointStatus:
    return SavepointStatus(
        **{"phase": "Ready", "taken": (one(),), "observed_generation": 1, **changes}
    )


def decide(a_savepoint: Savepoint, observed: SavepointObserved) -> Outcome[SavepointStatus]:
    """Return what is decided, after seeing that deciding again changes nothing more."""
    outcome = reconcile_savepoint(a_savepoint, observed, NOW)
    written = dataclasses.replace(a_savepoint, status=outcome.status)
    again = reconcile_savepoint(written, observed, NOW)
    assert again.status == outcome.status, "not idempotent"
    assert not any(isinstance(action, Report) for action in again.actions), "reported again"
    return outcome


def take(how: str = BESIDE, folder: str = FOLDER) -> Take:
    return Take(CHECKPOINT, folder, how)


def broken(kind: str = "StoreUnavailable") -> Broken:
    return Broken(NOW, kind, "no", "nothing", "mend it")


FOUND = SavepointTaken(f"{FOLDER}/clicks-7-x", 7, NOW - 2, sealed=False)
STOP = spec(stop=True)
OWNED = spec(reclaim_policy="Delete")
UPGRADING = dataclasses.replace(
    alive(stopping="savepoint"), upgrade=UpgradeStatus(mode="savepoint", savepoint="move")
)
OF_AN_UPGRADE: dict[str, Any] = {"attempt": 1, "job_uid": "u-job"}


@dataclass(frozen=True)
class Row:
    """A rule: what is there, and what follows; `is_ready`: status and reason of the condition."""

    rule: str
    savepoint: Savepoint
    seen: SavepointObserved
    phase: str
    acts: list[str] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)
    is_ready: tuple[str, str] | None = None
    status: dict[str, Any] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    wake: float | None = None


def check(row: Row) -> None:
    """See that what follows is what the row says."""
    outcome = decide(row.savepoint, row.seen)
    assert outcome.status.phase == row.phase
    assert acts(outcome) == row.acts
    assert reports(outcome) == row.reports
    if row.tasks:
        assert [a.task for a in outcome.actions if isinstance(a, RunTask)] == row.tasks
    if row.is_ready is not None:
        assert condition(outcome, "Ready") == row.is_ready
    assert {name: getattr(outcome.status, name) for name in row.status} == row.status
    if row.wake is not None:
        assert outcome.wake_at is not None
        assert outcome.wake_at - NOW == pytest.approx(row.wake, abs=0.01)
