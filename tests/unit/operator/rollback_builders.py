"""Builders of specs and statuses of jobs that are or may be rolled back."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import RollbackSettings
from sluicegate_operator.api.streaming_job_status import (
    CheckpointStatus,
    RollbackStatus,
    StableSpecStatus,
    StreamingJobStatus,
)
from tests.unit.operator.builders import NOW, alive, spec

ON = RollbackSettings(enabled=True, deadline_s=300)
STABLE = spec(rollback=ON)
NEW = spec(image="jobs:2", rollback=ON)
NEWER = spec(image="jobs:3", rollback=ON)
RESTARTED = dataclasses.replace(NEW, restart_nonce=1)
OFF = spec(image="jobs:2")
NO_RESTART = dataclasses.replace(NEW, restart=dataclasses.replace(NEW.restart, restart="none"))
LATE = "clicks-upgrade-u-job-1"
"""The savepoint of the upgrade of attempt 1."""
NO_PROGRESS: dict[str, Any] = {"attempt": 2, "progress": None}


def stable(wanted: StreamingJobSpec = STABLE, **changes: Any) -> StableSpecStatus:
    """Return the last stable spec, which created epoch 7 on checkpoint 1."""
    given: dict[str, Any] = {"number": 1, "last_epoch": 7, **changes}
    return StableSpecStatus(
        spec=wanted.seen_by_driver(),
        spec_hash=wanted.running_hash(),
        checkpoint=CheckpointStatus(**given),
    )


def trial(**changes: Any) -> StreamingJobStatus:
    """Return the status of a job whose attempt 2 runs a new spec and has created no epoch."""
    given = {"attempt": 2, "last_stable_spec": stable(), "trial_start_time": NOW - 101, **changes}
    return alive(NEW, **given)


def rolled_back(*, completed: bool = True, of: StreamingJobSpec = NEW) -> RollbackStatus:
    """Return the status of a rollback."""
    return RollbackStatus(spec_hash=of.running_hash(), reason="NoEpoch", completed=completed)


def terminated(status: StreamingJobStatus) -> StreamingJobStatus:
    """Return a status whose driver has ended."""
    return dataclasses.replace(
        status, driver=dataclasses.replace(status.driver, state="Terminated")
    )
