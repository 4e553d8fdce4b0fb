"""Jobs, pods and views for the tests of `reconcile`. Called by them only."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.reconcile.actions import Report
from sluicegate_operator.reconcile.job import Outcome, reconcile
from sluicegate_operator.reconcile.observed import Job, Observed, Pod, Progress
from sluicegate_operator.resources.job import CheckpointSettings, StreamingJobSpec
from sluicegate_operator.resources.job_status import (
    ALIVE,
    ASKED,
    ENDED,
    DriverStatus,
    StreamingJobStatus,
)

NOW = 1_800_000_000.0
"""A Friday, 08:00 UTC."""

STEADY = RestartSettings(restart_jitter=0.0)


def spec(**changes: Any) -> StreamingJobSpec:
    """Return a stateful stream whose restart delays have no jitter."""
    given: dict[str, Any] = {
        "image": "jobs:1",
        "main_module": "clicks",
        "checkpoint": CheckpointSettings(volume="store"),
        "restart": STEADY,
        **changes,
    }
    return StreamingJobSpec(**given)


def job(
    wanted: StreamingJobSpec | None = None, status: StreamingJobStatus | None = None, **changes: Any
) -> Job:
    """Return a job that is held, made an hour ago."""
    given = {"held": True, "created_at": NOW - 3600, "generation": 1, **changes}
    return Job(
        namespace="shop",
        name="clicks",
        uid="u-job",
        spec=wanted or spec(),
        status=status or StreamingJobStatus(),
        **given,
    )


def asked(wanted: StreamingJobSpec | None = None, **changes: Any) -> StreamingJobStatus:
    """Return the status of a job whose attempt 1 was asked for a second ago."""
    driver = DriverStatus(
        state=ASKED, asked_at=NOW - 1, tries=1, spec_hash=(wanted or spec()).running_hash()
    )
    return StreamingJobStatus(**{"attempt": 1, "driver": driver, **changes})


def alive(
    wanted: StreamingJobSpec | None = None, *, stopping: str = "", **changes: Any
) -> StreamingJobStatus:
    """Return the status of a job whose attempt 1 has run for 100 s."""
    driver = DriverStatus(
        state=ALIVE,
        uid="u-1",
        asked_at=NOW - 101,
        tries=1,
        running_at=NOW - 100,
        spec_hash=(wanted or spec()).running_hash(),
        stopping=stopping,
        stopping_at=NOW - 1 if stopping else None,
        purpose=changes.pop("purpose", "run"),
    )
    return StreamingJobStatus(**{"attempt": 1, "driver": driver, "settled": False, **changes})


def ended(wanted: StreamingJobSpec | None = None, **changes: Any) -> StreamingJobStatus:
    """Return the status of a job whose attempt 1 has ended."""
    before = alive(wanted, **changes)
    return dataclasses.replace(before, driver=dataclasses.replace(before.driver, state=ENDED))


def pod(wanted: StreamingJobSpec | None = None, **changes: Any) -> Pod:
    """Return attempt 1's pod, which has run for 100 s and made an epoch 5 s ago."""
    given: dict[str, Any] = {
        "attempt": 1,
        "phase": "Running",
        "created_at": NOW - 101,
        "running_at": NOW - 100,
        "spec_hash": (wanted or spec()).running_hash(),
        "progress": Progress(NOW - 5, 7),
        **changes,
    }
    return Pod(
        **{"name": f"clicks-{given['attempt']}-driver", "uid": f"u-{given['attempt']}", **given}
    )


def dead(code: int | None = 1, wanted: StreamingJobSpec | None = None, **changes: Any) -> Pod:
    """Return attempt 1's pod, which has just ended."""
    phase = "Succeeded" if code == 0 else "Failed"
    return pod(wanted, **{"phase": phase, "exit_code": code, "ended_at": NOW, **changes})


def view(*pods: Pod, **changes: Any) -> Observed:
    """Return a view that is as of now."""
    return Observed(**{"pods": pods, "as_of": NOW, **changes})


def decide(a_job: Job, seen: Observed, now: float = NOW) -> Outcome:
    """Return what is decided, after seeing that deciding again changes nothing more."""
    outcome = reconcile(a_job, seen, now)
    again = reconcile(dataclasses.replace(a_job, status=outcome.status), seen, now)
    assert again.status == outcome.status, "not idempotent"
    assert not any(isinstance(action, Report) for action in again.actions), "reported again"
    return outcome


def acts(outcome: Any) -> list[str]:
    """Return the names of the actions, events left out."""
    return [type(a).__name__ for a in outcome.actions if not isinstance(a, Report)]


def reports(outcome: Any) -> list[str]:
    """Return the reasons of the events."""
    return [a.reason for a in outcome.actions if isinstance(a, Report)]


def condition(outcome: Any, kind: str) -> tuple[str, str]:
    """Return a condition's status and reason."""
    found = next(one for one in outcome.status.conditions if one.type == kind)
    return found.status, found.reason
