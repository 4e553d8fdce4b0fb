"""One pass of `reconcile`: the status as it becomes, the actions so far, and when to look again.

Not here: any rule. Called by the steps of a pass.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.reconcile.actions import Action, Report
from sluicegate_operator.reconcile.observed import Job, Observed, Pod
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import (
    ALIVE,
    ASKED,
    DriverStatus,
    GoodStatus,
    StreamingJobStatus,
)
from sluicegate_operator.resources.parsing import parse

SEEN_S = 5.0
"""A pod that is not seen this long after it was asked for is asked for again."""

LANDS_S = 30.0
"""A request to create a pod has landed, or never will, this long after it was sent: whoever sends
one gives it a deadline well below this, and gives leadership up only after that."""

ERROR_BYTES = 1000
"""Of the last error in a status; the pod and the Event have all of it."""


@dataclass
class Pass:
    """What the steps of one pass share; made and dropped by `reconcile`."""

    job: Job
    observed: Observed
    now: float
    status: StreamingJobStatus
    actions: list[Action] = field(default_factory=list)
    wake_at: float | None = None
    waiting: tuple[str, str] | None = None
    failed: list[str] = field(default_factory=list)
    """Kinds of ends of drivers that were written down, but for those that were well."""
    parsed: tuple[GoodStatus, StreamingJobSpec | None] | None = None

    @property
    def spec(self) -> StreamingJobSpec:
        """What is to run: what the user wants or, after a rollback, the last good spec."""
        good = self.good_spec() if self.status.rollback is not None else None
        return self.job.spec if good is None else good

    def good_spec(self) -> StreamingJobSpec | None:
        """Return the last good spec under today's controls; None: there is none that can be read.

        A spec in a status that somebody has changed is none: its digest tells.
        """
        good = self.status.good
        if good is None:
            return None
        if self.parsed is None or self.parsed[0] is not good:
            self.parsed = (good, _read(good))
        found = self.parsed[1]
        return None if found is None else found.controlled_by(self.job.spec)

    def on_trial(self) -> bool:
        """Say whether there is a spec to go back to, and the user's is another."""
        good, back = self.status.good, self.status.rollback
        return good is not None and back is None and good.spec_hash != self.job.spec.running_hash()

    @property
    def driver(self) -> DriverStatus:
        """The newest driver, as the status has it."""
        return self.status.driver

    @property
    def underway(self) -> bool:
        """Whether there is, or may be, a newest driver that has not ended."""
        return self.driver.state in (ASKED, ALIVE)

    @property
    def pod(self) -> Pod | None:
        """The newest attempt's pod, if it is in view."""
        return next((p for p in self.observed.pods if p.attempt == self.status.attempt), None)

    def believes_absence(self) -> bool:
        """Say whether the newest attempt's pod, not being in view, does not exist and never will."""
        asked = self.driver.asked_at
        return asked is None or self.observed.as_of >= asked + LANDS_S

    def set(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the status
        """Change fields of the status."""
        self.status = dataclasses.replace(self.status, **changes)

    def set_driver(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the driver's status
        """Change fields of the newest driver's status."""
        self.set(driver=dataclasses.replace(self.driver, **changes))

    def forgive(self) -> None:
        """Begin anew: earlier failures count no more."""
        self.set(failures=(), failed="", next_start_time=None, tried_since=None)

    def blame(self, message: str) -> None:
        """Write down what went wrong with the newest driver."""
        self.set(last_error=shortened(f"attempt {self.status.attempt}: {message}", ERROR_BYTES))

    def act(self, action: Action) -> None:
        """Add an action."""
        self.actions.append(action)

    def report(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add an event."""
        self.act(Report(reason, message, warning))

    def wake(self, at: float) -> None:
        """Ask for another pass at a time, if nothing happens before."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    def wait(self, reason: str, message: str) -> None:
        """Say what a job that is not running waits for."""
        self.waiting = (reason, message)


def _read(good: GoodStatus) -> StreamingJobSpec | None:
    try:
        spec = parse(StreamingJobSpec, good.spec, "status.good.spec")
    except SettingsInvalid:
        return None  # `rollback` says so where it matters
    return spec if spec.running_hash() == good.spec_hash else None


def shortened(text: str, limit: int) -> str:
    """Return a text of at most so many bytes in UTF-8."""
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "…"
