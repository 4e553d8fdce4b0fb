"""State shared by the steps of one reconciliation of a StreamingJob."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.codec import API, parse
from sluicegate_operator.api.streaming_job import StreamingJobSpec, digest
from sluicegate_operator.api.streaming_job_status import (
    ACTIVE,
    REQUESTED,
    RUN,
    DriverStatus,
    StableSpecStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.actions import JobAction
from sluicegate_operator.reconcile.context import ReconcileContext
from sluicegate_operator.reconcile.observed import Job, Observed, Pod

RETRY_REQUEST_S = 5.0
"""A driver's pod is requested again if it is still absent this long after the last request."""

REQUEST_DEADLINE_S = 30.0
"""Every request to create a pod has taken effect by this time after it was sent, or never will: the
client gives each request a much shorter timeout, and a leader keeps its lease until they are over."""

_ERROR_BYTES, _MESSAGE_BYTES = 1000, 500
"""Limits of `status.lastError` and of a condition's message. The pod and the Event carry the whole text."""

SUSPEND, RESTART, UPGRADE, ROLLBACK, DELETE = "Suspend", "Restart", "Upgrade", "Rollback", "Delete"
FOR_SAVEPOINT, FOR_NEXT_RUN = "Savepoint", "Replace"
STUCK, IMAGE, SCHEDULING, STARTUP = "Stuck", "Image", "Scheduling", "Startup"
"""Why a driver is being stopped (`status.driver.stop_reason`). With FOR_SAVEPOINT the driver exits by
itself once its savepoint is taken. The last four count as failures of that driver."""

NEVER_RAN = (IMAGE, SCHEDULING, STARTUP)
"""Failures of drivers whose container never ran."""


@dataclass
class JobContext(ReconcileContext[StreamingJobStatus, JobAction]):
    """The context of one StreamingJob, as it was read."""

    job: Job = field(kw_only=True)
    observed: Observed = field(kw_only=True)
    new_failures: list[str] = field(default_factory=list)
    """Kinds of the driver failures recorded in this reconciliation."""
    upgrade_queued: str = ""
    """Why an upgrade waits for those of other jobs; empty: none does."""
    _parsed: tuple[StableSpecStatus, StreamingJobSpec | None] | None = None

    @property
    def spec(self) -> StreamingJobSpec:
        """What is to run: the resource's spec or, after a rollback, the last stable one."""
        stable = self.stable_spec() if self.status.rollback is not None else None
        return self.job.spec if stable is None else stable

    @property
    def spec_hash(self) -> str:
        """Digest of `spec`, for comparison with that of a driver."""
        stable = self.status.last_stable_spec if self.status.rollback is not None else None
        if stable is not None and self.stable_spec() is not None:
            return stable.spec_hash
        return self.resource_hash

    @property
    def resource_hash(self) -> str:
        """Digest of the resource's spec: the one with which it was accepted."""
        accepted = self.status.accepted
        return self.job.spec.running_hash() if accepted is None else accepted.spec_hash

    def stable_spec(self) -> StreamingJobSpec | None:
        """Return the last stable spec with the operator-side settings of the current one.

        None if there is no such spec, if it cannot be parsed, or if somebody edited it in the
        status: then its digest does not match.
        """
        stable = self.status.last_stable_spec
        if stable is None:
            return None
        if self._parsed is None or self._parsed[0] is not stable:
            self._parsed = (stable, _parse(stable))
        found = self._parsed[1]
        return None if found is None else found.controlled_by(self.job.spec)

    def spec_unproven(self) -> bool:
        """Return whether the resource's spec differs from a last stable one that is in reserve."""
        stable, rollback = self.status.last_stable_spec, self.status.rollback
        if stable is None or rollback is not None:
            return False
        return stable.spec_hash != self.resource_hash

    @property
    def driver(self) -> DriverStatus:
        """The newest driver, as recorded in the status."""
        return self.status.driver

    @property
    def driver_active(self) -> bool:
        """Whether the newest driver was requested or is alive, and its end is not recorded yet."""
        return self.driver.state in (REQUESTED, ACTIVE)

    @property
    def pod(self) -> Pod | None:
        """The newest attempt's pod, if the cache has it."""
        return next((p for p in self.observed.pods if p.attempt == self.status.attempt), None)

    def next_attempt(self) -> int:
        """Return a number that no driver and no standby of the job has had."""
        standby = self.status.standby
        used = (pod.attempt for pod in self.observed.pods)
        return max(self.status.attempt, standby.attempt if standby else 0, *used) + 1

    def begin_attempt(self, number: int, driver: DriverStatus) -> None:
        """Begin an attempt: its number is written before its pod is created or promoted."""
        if self.status.next_start_time is not None:
            self.set(restarts=self.status.restarts + 1)
        if self.spec_unproven() and self.status.trial_start_time is None and driver.mode == RUN:
            self.set(trial_start_time=self.now)
        self.set(attempt=number, next_start_time=None, driver=driver)

    def absence_confirmed(self) -> bool:
        """Return whether a newest pod that the cache lacks does not exist and cannot appear later."""
        requested = self.driver.request_time
        return requested is None or self.observed.as_of >= requested + REQUEST_DEADLINE_S

    def set_driver(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the driver's status
        """Change fields of the newest driver's status."""
        self.set(driver=dataclasses.replace(self.driver, **changes))

    def set_checkpoint(self, **changes: Any) -> None:  # noqa: ANN401 - fields of its status
        """Change fields of the current checkpoint's status."""
        self.set(checkpoint=dataclasses.replace(self.status.checkpoint, **changes))

    def reset_failures(self) -> None:
        """Forget earlier failures: the restart budgets are full again."""
        self.set(failures=(), failure_reason="", next_start_time=None, trial_start_time=None)

    def set_last_error(self, message: str) -> None:
        """Record what went wrong with the newest driver."""
        self.set(last_error=_truncate(f"attempt {self.status.attempt}: {message}", _ERROR_BYTES))

    def set_condition(self, kind: str, reason: str, message: str = "", *, holds: bool) -> None:
        """Set a condition, with a message of limited length."""
        super().set_condition(kind, reason, short(message), holds=holds)


def _parse(stable: StableSpecStatus) -> StreamingJobSpec | None:
    try:
        known, _ = API.without_unknown(StreamingJobSpec, stable.spec)
        spec = parse(StreamingJobSpec, known, "status.lastStableSpec.spec")
    except SettingsInvalid:
        return None  # `rollback` reports it when a rollback needs the spec
    return spec if digest(stable.spec) == stable.spec_hash else None


def short(message: str) -> str:
    """Return a message for people, cut to the length that a status may carry."""
    return _truncate(message, _MESSAGE_BYTES)


def _truncate(text: str, limit: int) -> str:
    """Return a text cut to a number of bytes in UTF-8."""
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "…"
