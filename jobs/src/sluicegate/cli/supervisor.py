"""Runs a job's driver in a process group of its own and starts it again by the job's strategy.

A process, not a thread: an epoch past its timeout, a JVM that died and a Python that was killed
all end the same way, and the next driver finds what was decided. Called by `sluicegate run`.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

from sluicegate.cli.job import PackagedJob
from sluicegate.cli.options import as_arguments, as_environment
from sluicegate.protocol import errors
from sluicegate.settings.job import JobSettings
from sluicegate.settings.restart import Failure, next_restart
from sluicegate.tracing import outcome

log = logging.getLogger("sluicegate.run")

_NEVER_AGAIN = frozenset({64, 65, 66})
"""Exit codes of errors that starting again cannot mend: settings, fenced, history broken."""


def supervise(job: PackagedJob, settings: JobSettings) -> int:
    """Run drivers until one ends well, cannot be mended, or the strategy gives up.

    Returns:
        The exit code of the last driver.
    """
    failures: list[Failure] = []
    with _Stopper() as stopper, tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "outcome"
        environment = {
            **os.environ,
            **as_environment(job.name, settings),
            outcome.VARIABLE: str(said),
        }
        command = [sys.executable, "-m", "sluicegate.cli", "run", job.name, "--once"]
        while True:
            said.unlink(missing_ok=True)
            started = time.monotonic()
            code = stopper.run([*command, *as_arguments(settings, empty=True)], environment)
            if code == 0 or stopper.asked:
                return code
            ended = time.monotonic()
            failures.append(Failure(ended, ended - started))
            failed = f"attempt {len(failures)} failed after {ended - started:.0f} s with " + (
                f"signal {-code}" if code < 0 else f"exit code {code}"
            )
            why = outcome.read(said) or "it had no time to say why"
            if code in _NEVER_AGAIN:
                log.error("%s: %s; starting again cannot help", failed, why)
                return code
            following = next_restart(settings, failures, random.random)
            if following.delay_s is None:
                log.error("%s: %s; not started again (%s)", failed, why, following.why)
                return code
            log.warning(
                "%s: %s; restart in %.3g s (%s)", failed, why, following.delay_s, following.why
            )
            if stopper.wait(following.delay_s):
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

    def run(self, command: list[str], environment: Mapping[str, str]) -> int:
        """Run a driver to its end in a session of its own."""
        if self.asked:
            return 0
        self._child = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            return self._child.wait()
        finally:
            # a killed Python leaves its JVM for a moment; two drivers must never overlap
            self._end_group()

    def wait(self, seconds: float) -> bool:
        """Wait before a restart; True if asked to stop meanwhile."""
        return self._event.wait(seconds)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.asked = True
        self._event.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _end_group(self) -> None:
        if self._child is None:
            return
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # all of it has ended by itself


def drive(job: PackagedJob, settings: JobSettings) -> int:
    """Run one driver in this process until it ends or is asked to.

    SIGTERM stops it at an epoch's end; SIGINT (Ctrl-C) cancels it, which is the same unless
    `on_cancel` is 'delete'.

    Returns:
        0, or the exit code of the error that ended it (which is logged).
    """
    from sluicegate.spark.session import session  # noqa: PLC0415 - only a driver needs Spark

    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    started = time.monotonic()
    try:
        spark = session(job.name)
        with _asked(asked):
            query = job.build(spark, settings).start()
            log.info(
                "%s started in %.1f s, lineage %s",
                job.name,
                time.monotonic() - started,
                query.lineage,
            )
            while not query.await_end(0.2):
                if not asked.empty():
                    log.info("%s stops at the end of the epoch", job.name)
                    (query.cancel if asked.get() == signal.SIGINT else query.stop)()
                    break
    except errors.SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        outcome.write(error)
        return error.exit_code
    log.info("%s ended", job.name)
    return 0


@contextmanager
def _asked(asked: queue.SimpleQueue[int]) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a request; set after Spark has set its own handlers."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {s: signal.signal(s, lambda number, _: asked.put(number)) for s in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
