"""Builds jobs with a standby, and the pods of driver and standby."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate_operator.api.streaming_job_settings import ExecutorSettings
from sluicegate_operator.api.streaming_job_status import (
    READY,
    STARTING,
    StandbyStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.observed import Pod
from tests.unit.operator.builders import NOW, alive, dead, pod, spec

LOCAL = ExecutorSettings(instances=0)
WITH = spec(standby=1, executor=LOCAL)
NEW = dataclasses.replace(WITH, image="jobs:2")
STATELESS = dataclasses.replace(WITH, stateful=False)


def standby(state: str = READY, **changes: Any) -> StandbyStatus:
    """Return the status of standby 2, which has been running for 50 s."""
    given = {"attempt": 2, "uid": "u-2", "request_time": NOW - 60, "requests": 1, **changes}
    if state in (STARTING, READY):
        given.setdefault("start_time", NOW - 50)
    return StandbyStatus(state=state, **given)


def waiting(**changes: Any) -> Pod:
    """Return the pod of standby 2, which is ready."""
    given = {"attempt": 2, "standby": True, "standby_ready": True, "progress": None, **changes}
    return pod(WITH, running_at=given.pop("running_at", NOW - 50), **given)


def driver() -> Pod:
    return pod(WITH)


def killed() -> Pod:
    return dead(137, WITH)


def status_of(attempt: Any = alive, **changes: Any) -> StreamingJobStatus:
    found: StreamingJobStatus = attempt(WITH, **{"standby": standby(), **changes})
    return found
