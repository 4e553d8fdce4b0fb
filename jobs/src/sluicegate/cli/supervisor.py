"""Runs the driver of a job in its own process group and restarts it by the job's restart strategy.

The driver is a process, not a thread: an epoch timeout, a dead JVM and a killed Python all end the
same way, and the next driver finds what was decided.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Self

from sluicegate import errors
from sluicegate.cli.options import as_arguments, as_environment
from sluicegate.deployment import termination
from sluicegate.deployment.environment import DriverVariable
from sluicegate.packaged_job import JobSettings, PackagedJob
from sluicegate.settings.restart import Failure, next_restart

log = logging.getLogger("sluicegate.run")


def supervise(job: PackagedJob, settings: JobSettings) -> int:
    """Run drivers until one succeeds, a restart cannot help, or the strategy gives up; return its exit code."""
    failures: list[Failure] = []
    was_fenced = False
    with _Stopper() as stopper, tempfile.TemporaryDirectory() as folder:
        termination_file = Path(folder) / "termination"
        environment = {
            **os.environ,
            **as_environment(job.name, settings),
            str(DriverVariable.TERMINATION_FILE): str(termination_file),
        }
        command = [sys.executable, "-m", "sluicegate.cli", "run", job.name, "--once"]
        while True:
            termination_file.unlink(missing_ok=True)
            started = time.monotonic()
            code = stopper.run([*command, *as_arguments(settings, empty=True)], environment)
            if code == 0 or stopper.requested.is_set():
                return code
            ended = time.monotonic()
            failures.append(Failure(ended, ended - started))
            failed = f"attempt {len(failures)} failed after {ended - started:.0f} s with " + (
                f"signal {-code}" if code < 0 else f"exit code {code}"
            )
            why = termination.read(termination_file) or "no reason was written"
            fenced = why.startswith(f"{errors.Fenced.__name__}: ")
            if fenced and not was_fenced and _may_have_no_rival(settings, failures[-1]):
                log.warning("%s: %s; restart once, in case the other driver has ended", failed, why)
                was_fenced = True
                continue
            was_fenced = fenced
            if code in errors.FINAL_EXIT_CODES:
                log.error("%s: %s; a restart cannot help", failed, why)
                return code
            decision = next_restart(settings, failures, random.random)
            if decision.delay_s is None:
                log.error("%s: %s; no restart (%s)", failed, why, decision.why)
                return code
            log.warning(
                "%s: %s; restart in %.3g s (%s)", failed, why, decision.delay_s, decision.why
            )
            if stopper.requested.wait(decision.delay_s):
                return code


def _may_have_no_rival(settings: JobSettings, failure: Failure) -> bool:
    """Return whether the driver that fenced this one may have ended, so that a restart can help.

    It may be an orphan, whose supervisor was killed before this driver started: it decides at most
    one more epoch, within the epoch timeout. Or it is the driver before this one, which ended
    without a reply to its decision, and whose request arrived late. If the next driver is fenced
    too, a rival is alive: two supervisors of one checkpoint must not fence each other without end.
    """
    return not settings.timeout_s or failure.ran_s < settings.timeout_s


class _Stopper:
    """Forwards SIGINT and SIGTERM to the driver, which then stops at the end of an epoch."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        return self

    def __exit__(self, *_error: object) -> None:
        self._kill_group()

    def run(self, command: list[str], environment: Mapping[str, str]) -> int:
        """Run a driver in its own session and return its exit code."""
        if self.requested.is_set():
            return 0
        read_end, write_end = os.pipe()  # the driver sees its end when this process ends
        try:
            self._child = subprocess.Popen(
                command,
                env={**environment, str(DriverVariable.SUPERVISOR): str(read_end)},
                start_new_session=True,
                pass_fds=(read_end,),
            )
            return self._child.wait()
        finally:
            os.close(read_end)
            os.close(write_end)
            # the JVM of a killed Python lives on for a moment; two drivers must never overlap
            self._kill_group()

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.requested.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _kill_group(self) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):  # all its processes have ended already
                os.killpg(self._child.pid, signal.SIGKILL)


def stop_without_supervisor() -> None:
    """Send SIGTERM to this process when its supervisor has ended, even if that was killed.

    A driver that lived on would fence, or be fenced by, the driver of the next supervisor. The
    supervisor alone has the write end of the pipe, so end of file means that it has ended: at once,
    also in a container in which process 1 adopts orphans, and never because it is suspended.
    """
    descriptor = os.environ.pop(DriverVariable.SUPERVISOR, "")
    if descriptor:
        threading.Thread(
            target=_await_end_of_supervisor, args=(int(descriptor),), daemon=True
        ).start()


def _await_end_of_supervisor(descriptor: int) -> None:
    os.read(descriptor, 1)
    log.warning("the supervisor of this driver was killed; the driver stops as at SIGTERM")
    os.kill(os.getpid(), signal.SIGTERM)


def drive(job: PackagedJob, settings: JobSettings) -> int:
    """Run one driver in this process until it ends; return 0 or the exit code of its error.

    SIGTERM, or the end of its supervisor, stops it at the end of an epoch. SIGINT (Ctrl-C) cancels
    it, which is the same unless `on_cancel` is 'delete'.
    """
    from sluicegate.spark.session import session  # noqa: PLC0415 - only a driver needs Spark

    stop_without_supervisor()
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    started = time.monotonic()
    try:
        spark = session(job.name)
        with _queue_signals(signals):
            query = job.build(spark, settings).start()
            log.info(
                "%s started in %.1f s, lineage %s",
                job.name,
                time.monotonic() - started,
                query.lineage,
            )
            while not query.await_end(0.2):
                if not signals.empty():
                    log.info("%s stops at the end of the epoch", job.name)
                    (query.cancel if signals.get() == signal.SIGINT else query.stop)()
                    break
    except errors.SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        termination.write(error)
        return error.exit_code
    log.info("%s ended", job.name)
    return 0


@contextmanager
def _queue_signals(signals: queue.SimpleQueue[int]) -> Iterator[None]:
    """Put SIGINT and SIGTERM into a queue; installed after Spark has installed its own handlers."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {s: signal.signal(s, lambda number, _: signals.put(number)) for s in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
