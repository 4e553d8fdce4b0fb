"""Reports a driver's progress to Kubernetes, as an annotation of its own pod.

A background thread sends the newest report: the first epoch at once, later ones at the interval that
the operator chose, which is at most a quarter of the progress deadline. No epoch waits for the API
server. A failure is logged once per kind, retried within ten seconds, and never ends the driver. Outside
of a pod nothing is sent.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import TypedDict

from sluicegate.deployment.environment import PROGRESS_ANNOTATION, DriverEnvironment
from sluicegate.deployment.own_pod import OwnPod
from sluicegate.deployment.pod_report import Annotatable, PodReport

log = logging.getLogger("sluicegate.progress")

EVERY_S = 10.0
"""Interval of reports without an operator that chose one."""
RETRY_S = 10.0
"""Longest time until a failed report is sent again: the interval may be a minute."""

_LAST_REPORT_S = 2.0
"""How long the end of a query waits until its last report is sent."""


class VerdictReport(TypedDict):
    """What bounds the job: one CamelCase word, and sentences for people."""

    reason: str
    message: str


class ProgressReporter:
    """Sends the progress of a driver in the background.

    Args:
        pod: receives the annotation; None: nothing is sent.
        every_s: minimum time in seconds between two reports after the first epoch.
    """

    def __init__(self, pod: Annotatable | None, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._report_to = pod and PodReport(
            pod,
            PROGRESS_ANNOTATION,
            log,
            what="progress",
            data="the job goes on; the operator may consider it stuck",
        )
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._epoch: int | None = None
        self._decided = False
        self._verdict: Callable[[], VerdictReport] | None = None
        self._at = 0.0
        self._unsent = self._closed = self._first_reported = self._verdict_failed = False
        self._next = 0.0

    @classmethod
    def of_pod(cls) -> ProgressReporter:
        """Return a reporter for the pod of this process, with the interval of its environment."""
        return cls(OwnPod.read(), DriverEnvironment.read().progress_interval_s or EVERY_S)

    @property
    def enabled(self) -> bool:
        """Whether reports are sent at all."""
        return self._report_to is not None

    def before(self, epoch: int | None, verdict: Callable[[], VerdictReport] | None = None) -> None:
        """Set what is known when the query starts; sends nothing.

        Args:
            epoch: the one that was in every sink.
            verdict: returns what bounds the job; called in the background for each report.
        """
        self._epoch, self._verdict = epoch, verdict

    def epoch(self, epoch: int, *, decided: bool = True) -> None:
        """Report that an epoch is in every sink, and whether this driver has decided it."""
        with self._changed:
            self._decided = self._decided or decided
            if not self._first_reported:
                self._first_reported, self._next = True, 0.0
            self._epoch = epoch
            self._report()

    def idle(self) -> None:
        """Report that the query is alive and has nothing to do."""
        with self._changed:
            self._report()

    def due(self) -> bool:
        """Return whether a report would be sent at once; spares the caller a costly check."""
        return self.enabled and not self._unsent and time.monotonic() >= self._next

    def close(self) -> None:
        """Send the last report if the API server answers soon, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_LAST_REPORT_S)

    def _report(self) -> None:
        if self._report_to is None or self._closed:
            return
        self._at, self._unsent = time.time(), True
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._report_to,), name="sluicegate-progress", daemon=True
            )
            self._thread.start()
        self._changed.notify()

    def _run(self, report: PodReport) -> None:
        while (value := self._next_report()) is not None:
            sent = report.send(value)
            with self._changed:
                if not sent:
                    self._unsent = True
                    self._next = min(self._next, time.monotonic() + RETRY_S)
                if self._closed and not sent:
                    return  # the end of a driver does not wait for an API server that fails

    def _next_report(self) -> str | None:
        """Wait until a report is due and return it; None after the last one."""
        with self._changed:
            while not self._closed:
                left = self._next - time.monotonic()
                if self._unsent and left <= 0:
                    break
                self._changed.wait(left if self._unsent else None)
            if not self._unsent:
                return None
            # counted from now, not from the response: a first epoch in between is due at once
            self._unsent, self._next = False, time.monotonic() + self._every_s
            at = dt.datetime.fromtimestamp(self._at, tz=dt.UTC)
            stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            report: dict[str, object] = {
                "epoch": self._epoch,
                "at": stamp,
                "decided": self._decided,
            }
        return json.dumps(report | self._details())

    def _details(self) -> dict[str, object]:
        """Return what bounds the job; nothing if that fails, because a driver without reports is stuck."""
        if self._verdict is None:
            return {}
        try:
            return {"verdict": self._verdict()}
        except Exception as error:  # noqa: BLE001 - no failure here may end the driver
            if not self._verdict_failed:
                self._verdict_failed = True
                log.warning(
                    "progress is reported without what bounds the job (%s): %s\n"
                    "  data: not affected\n"
                    "  do: report this line as a defect",
                    type(error).__name__,
                    error,
                )
            return {}
