"""Builders of Savepoints, their statuses and tasks, and what is observed of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus, TakenStatus
from sluicegate_operator.api.schedule import Schedule
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.reconcile.observed import Job, Savepoint, SavepointObserved, Volume
from sluicegate_operator.reconcile.storage_tasks import (
    COPY,
    FailedTask,
    SavepointTaken,
    TakeSavepoint,
)
from tests.unit.operator import builders, volume_builders
from tests.unit.operator.builders import NOW, alive

URL = "s3://data/sluice"
CHECKPOINT = f"{URL}/clicks/1"
FOLDER = f"{URL}/savepoints/clicks/move/u-savepo"
HOURLY = Schedule(cron="0 * * * *")


def spec(**changes: Any) -> SavepointSpec:
    """Return the spec of a Savepoint of the job clicks."""
    return SavepointSpec(**{"job": "clicks", **changes})


def savepoint(
    savepoint_spec: SavepointSpec | None = None,
    status: SavepointStatus | None = None,
    **changes: Any,
) -> Savepoint:
    """Return a Savepoint that was created half an hour ago and reconciled since."""
    given = {
        "namespace": "shop",
        "name": "move",
        "uid": "u-savepoint",
        "generation": 1,
        "created_at": NOW - 1800,
        **changes,
    }
    was = status or SavepointStatus(observed_generation=1)
    return Savepoint(spec=savepoint_spec or spec(), status=was, **given)


def job(status: StreamingJobStatus | None = None, **changes: Any) -> Job:
    """Return the job clicks, with a running driver by default."""
    return builders.job(status=status or alive(), **changes)


def store(name: str = "store", *, ready: bool = True, **changes: Any) -> Volume:
    """Return a CheckpointVolume."""
    volume_spec = volume_builders.spec(**changes)
    access = volume_builders.access_digest(volume_spec)
    failed = volume_builders.failing(failed_access=access)
    passed = volume_builders.healthy(checked_access=access)
    return volume_builders.volume(volume_spec, passed if ready else failed, name=name)


def observed(a_job: Job | None = None, *volumes: Volume, **changes: Any) -> SavepointObserved:
    """Return an observation with a running job and its ready volume."""
    by_name = {one.name: one for one in volumes or (store(),)}
    return SavepointObserved(**{"job": a_job or job(), "volumes": by_name, **changes})


def taking(**changes: Any) -> SavepointStatus:
    """Return the status of a Savepoint that is being taken."""
    return SavepointStatus(
        **{"phase": "Taking", "folder": FOLDER, "observed_generation": 1, **changes}
    )


def completed(name: str = "a", **changes: Any) -> TakenStatus:
    """Return a completed savepoint."""
    given = {"location": f"{FOLDER}/{name}", "epoch": 7, "completion_time": NOW - 9, **changes}
    return TakenStatus(**given)


def ready(**changes: Any) -> SavepointStatus:
    """Return the status of a Savepoint that was taken."""
    return SavepointStatus(
        **{"phase": "Ready", "taken": (completed(),), "observed_generation": 1, **changes}
    )


def take(method: str = COPY, folder: str = FOLDER) -> TakeSavepoint:
    """Return the task that takes the Savepoint."""
    return TakeSavepoint(CHECKPOINT, folder, method)


def failed_now(kind: str = "StoreUnavailable") -> FailedTask:
    """Return a task state that failed now."""
    return FailedTask(NOW, kind, "no", "nothing", "mend it")


RESULT = SavepointTaken(f"{FOLDER}/clicks-7-x", 7, NOW - 2, sealed=False)
STOP = spec(stop=True)
OWNING = spec(reclaim_policy="Delete")
UPGRADING = dataclasses.replace(
    alive(stop_reason="Savepoint"), upgrade=UpgradeStatus(mode="Savepoint", savepoint="move")
)
OF_AN_UPGRADE: dict[str, Any] = {"attempt": 1, "job_uid": "u-job"}
