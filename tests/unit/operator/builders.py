"""Builders of StreamingJobs, their statuses and pods, and what is observed of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.api.streaming_job_status import (
    ACTIVE,
    REQUESTED,
    RUN,
    TERMINATED,
    CheckpointStatus,
    DriverStatus,
    FailureStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.observed import Job, Observed, Pod, Progress

NOW = 1_800_000_000.0
"""A Friday, 08:00 UTC."""

NO_JITTER = RestartSettings(restart_jitter=0.0)


def spec(**changes: Any) -> StreamingJobSpec:
    """Return the spec of a stateful stream whose restart delays have no jitter."""
    given: dict[str, Any] = {
        "image": "jobs:1",
        "main_module": "clicks",
        "checkpoint": CheckpointSettings(volume="store"),
        "restart": NO_JITTER,
        **changes,
    }
    return StreamingJobSpec(**given)


def job(
    job_spec: StreamingJobSpec | None = None,
    status: StreamingJobStatus | None = None,
    **changes: Any,
) -> Job:
    """Return a job with our finalizer, created an hour ago."""
    given = {"has_finalizer": True, "created_at": NOW - 3600, "generation": 1, **changes}
    return Job(
        namespace="shop",
        name="clicks",
        uid="u-job",
        spec=job_spec or spec(),
        status=status or StreamingJobStatus(),
        **given,
    )


def _status(given: dict[str, Any]) -> StreamingJobStatus:
    """Return a status from its fields and those of its checkpoint."""
    names = {one.name for one in dataclasses.fields(CheckpointStatus)} & given.keys()
    checkpoint = CheckpointStatus(**{name: given.pop(name) for name in names})
    return StreamingJobStatus(**{"checkpoint": checkpoint, **given})


def requested(job_spec: StreamingJobSpec | None = None, **changes: Any) -> StreamingJobStatus:
    """Return the status of a job whose attempt 1 was requested a second ago."""
    driver = DriverStatus(
        state=REQUESTED,
        request_time=NOW - 1,
        requests=1,
        spec_hash=(job_spec or spec()).running_hash(),
    )
    return _status({"attempt": 1, "driver": driver, **changes})


def alive(
    job_spec: StreamingJobSpec | None = None, *, stop_reason: str = "", **changes: Any
) -> StreamingJobStatus:
    """Return the status of a job whose attempt 1 has been running for 100 s."""
    driver = DriverStatus(
        state=ACTIVE,
        uid="u-1",
        request_time=NOW - 101,
        requests=1,
        start_time=NOW - 100,
        spec_hash=(job_spec or spec()).running_hash(),
        stop_reason=stop_reason,
        stop_time=NOW - 1 if stop_reason else None,
        mode=changes.pop("mode", RUN),
    )
    return _status({"attempt": 1, "driver": driver, "all_epochs_applied": False, **changes})


def ended(job_spec: StreamingJobSpec | None = None, **changes: Any) -> StreamingJobStatus:
    """Return the status of a job whose attempt 1 has ended."""
    before = alive(job_spec, **changes)
    return dataclasses.replace(before, driver=dataclasses.replace(before.driver, state=TERMINATED))


def pod(job_spec: StreamingJobSpec | None = None, **changes: Any) -> Pod:
    """Return the pod of attempt 1, which has been running for 100 s and made an epoch 5 s ago."""
    given: dict[str, Any] = {
        "attempt": 1,
        "phase": "Running",
        "seen_at": NOW - 101,
        "running_at": NOW - 100,
        "spec_hash": (job_spec or spec()).running_hash(),
        "progress": Progress(NOW - 5, 7),
        **changes,
    }
    return Pod(
        **{"name": f"clicks-{given['attempt']}-driver", "uid": f"u-{given['attempt']}", **given}
    )


def dead(code: int | None = 1, job_spec: StreamingJobSpec | None = None, **changes: Any) -> Pod:
    """Return the pod of attempt 1, which has just ended."""
    phase = "Succeeded" if code == 0 else "Failed"
    return pod(job_spec, **{"phase": phase, "exit_code": code, "ended_at": NOW, **changes})


def observed(*pods: Pod, **changes: Any) -> Observed:
    """Return an observation that is current."""
    return Observed(**{"pods": pods, "as_of": NOW, **changes})


def with_restart(**changes: Any) -> StreamingJobSpec:
    """Return a spec with another restart strategy, without jitter."""
    return spec(restart=RestartSettings(restart_jitter=0.0, **changes))


def failures(kind: str, count: int) -> tuple[FailureStatus, ...]:
    """Return failures of a kind, five minutes ago."""
    return tuple(FailureStatus(kind=kind, time=NOW - 300 + i) for i in range(count))


BACKOFF = {"next_start_time": NOW + 1, "failure_reason": ""}
"""Status of a job whose driver failed for the first time."""
