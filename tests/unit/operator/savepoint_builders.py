"""Builders of Savepoints, their statuses and tasks, and what is observed of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus, TakenStatus
from sluicegate_operator.api.streaming_job import Schedule
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.reconcile.observed import JobView, Savepoint, SavepointObserved, VolumeView
from sluicegate_operator.reconcile.storage_tasks import (
    COPY,
    FailedTask,
    SavepointTaken,
    TakeSavepoint,
)
from tests.unit.operator import builders
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


def job(status: StreamingJobStatus | None = None, **changes: Any) -> JobView:
    """Return the job clicks, with a running driver by default."""
    return JobView("clicks", "u-job", builders.spec(), status or alive(), **changes)


def store(name: str = "store", *, ready: bool = True, **changes: Any) -> VolumeView:
    """Return a CheckpointVolume."""
    given = {"endpoint": "http://s3:7070", "bucket": "data", "prefix": "sluice", **changes}
    return VolumeView(name, CheckpointVolumeSpec(**given), ready, "" if ready else "no keys")


def observed(
    a_job: JobView | None = None, *volumes: VolumeView, **changes: Any
) -> SavepointObserved:
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
