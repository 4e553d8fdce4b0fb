"""Reports how many executors a driver has to Kubernetes, as an annotation of its own pod.

A background thread asks Spark every ten seconds, and reports the number if it has changed: also before
the first epoch, and while an epoch waits for executors, when no progress is reported.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable

from sluicegate.deployment.environment import EXECUTORS_ANNOTATION
from sluicegate.deployment.pod_report import Annotatable, PodReport

log = logging.getLogger("sluicegate.executors")

EVERY_S = 10.0


class ExecutorsReporter:
    """Reports the number of executors in the background, from its creation to `close`.

    Args:
        pod: receives the annotation.
        wanted: how many executors the driver has requested.
        count: returns how many are connected to it; called in the background.
        every_s: time in seconds between two calls of it.
    """

    def __init__(
        self, pod: Annotatable, wanted: int, count: Callable[[], int], every_s: float = EVERY_S
    ) -> None:
        self._report = PodReport(
            pod,
            EXECUTORS_ANNOTATION,
            log,
            what="the number of executors",
            data="the job goes on; status.executors of the StreamingJob is out of date",
        )
        self._wanted, self._count, self._every_s = wanted, count, every_s
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="sluicegate-executors", daemon=True).start()

    def close(self) -> None:
        """Stop. A request under way may still end afterwards."""
        self._closed.set()

    def _run(self) -> None:
        reported: int | None = None
        while not self._closed.is_set():
            running = self._running()
            value = json.dumps({"running": running, "wanted": self._wanted})
            if running not in (None, reported) and self._report.send(value):
                reported = running
            self._closed.wait(self._every_s)

    def _running(self) -> int | None:
        try:
            return self._count()
        except Exception as error:  # noqa: BLE001 - no failure here may end the driver
            # Spark is busy, or it has ended, which the query reports
            log.debug("the number of executors is unknown: %s", error)
            return None
