"""Runs a job's driver in a process group of its own and starts it again by the job's strategy.

A process, not a thread: an epoch past its timeout, a JVM that died and a Python that was killed
all end the same way, and the next driver finds what was decided. Called by `sluicegate run`.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from sluicegate.cli.job import PackagedJob
from sluicegate.cli.options import as_arguments
from sluicegate.protocol import errors
from sluicegate.protocol.restarts import FixedDelay

log = logging.getLogger("sluicegate.run")

MASTER_VARIABLE = "SLUICEGATE_MASTER"
"""Spark's master URL; default two threads in the driver."""

_NEVER_AGAIN = frozenset({64, 65, 66})
"""Exit codes of errors that starting again cannot mend: settings, fenced, history broken."""


def supervise(job: PackagedJob, settings: Any) -> int:  # noqa: ANN401
    """Run drivers until one ends well, cannot be mended, or the strategy gives up.

    Returns:
        The exit code of the last driver.
    """
    strategy = FixedDelay(settings.restarts, settings.restart_delay_s)
    failures = 0
    with _Stopper() as stopper:
        while True:
            code = stopper.run(
                [
                    sys.executable,
                    "-m",
                    "sluicegate.cli",
                    "run",
                    job.name,
                    "--once",
                    *as_arguments(settings),
                ]
            )
            if code == 0 or stopper.asked:
                return code
            failures += 1
            delay = None if code in _NEVER_AGAIN else strategy.next_delay_s(failures)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if delay is None:
                log.error("the driver ended with %s and is not started again", how)
                return code
            log.warning(
                "the driver ended with %s; restart %d of %d in %g s",
                how,
                failures,
                strategy.attempts,
                delay,
            )
            if stopper.wait(delay):
                return code


class _Stopper:
    """Passes SIGINT and SIGTERM on to the driver as a request to end at an epoch's end."""

    def __init__(self) -> None:
        self.asked = False
        self._event = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        return self

    def __exit__(self, *_error: object) -> None:
        self._end_group()

    def run(self, command: list[str]) -> int:
        """Run a driver to its end in a session of its own."""
        if self.asked:
            return 0
        self._child = subprocess.Popen(command, start_new_session=True)
        try:
            return self._child.wait()
        finally:
            # a killed Python leaves its JVM for a moment; two drivers must never overlap
            self._end_group()

    def wait(self, seconds: float) -> bool:
        """Wait before a restart; True if asked to stop meanwhile."""
        return self._event.wait(seconds)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        self._event.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def _end_group(self) -> None:
        if self._child is None:
            return
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # all of it has ended by itself


def drive(job: PackagedJob, settings: Any) -> int:  # noqa: ANN401
    """Run one driver in this process until it ends or is asked to.

    Returns:
        0, or the exit code of the error that ended it (which is logged).
    """
    from sluicegate.spark.session import session  # noqa: PLC0415 - only a driver needs Spark

    stop = threading.Event()
    started = time.monotonic()
    try:
        spark = session(job.name, master=os.environ.get(MASTER_VARIABLE, "local[2]"))
        with _asked(stop):
            query = job.build(spark, settings).start()
            log.info(
                "%s started in %.1f s, lineage %s",
                job.name,
                time.monotonic() - started,
                query.lineage,
            )
            while not query.await_end(0.2):
                if stop.is_set():
                    log.info("%s stops at the end of the epoch", job.name)
                    query.stop()
                    break
    except errors.SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        return error.exit_code
    log.info("%s ended", job.name)
    return 0


@contextmanager
def _asked(stop: threading.Event) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a request; set after Spark has set its own handlers."""
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
