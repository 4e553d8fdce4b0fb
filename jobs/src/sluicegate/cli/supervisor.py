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
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Self

from sluicegate import errors
from sluicegate.cli.driver_process import (
    DriverProcess,
    await_turn,
    is_standby,
    report_started,
    stop_without_supervisor,
)
from sluicegate.cli.options import as_arguments, as_environment
from sluicegate.deployment import termination
from sluicegate.deployment.environment import DriverVariable
from sluicegate.packaged_job import JobSettings, PackagedJob
from sluicegate.settings.restart import Failure, next_restart
from sluicegate.storage.driver_end import DriverEnd, write_end
from sluicegate.storage.driver_failure import DriverFailure, write_failure

log = logging.getLogger("sluicegate.run")

_STOPPED_CODES = (0, -signal.SIGINT, -signal.SIGTERM)
"""Exit codes of drivers that were stopped; a signal ends one that has not started its query."""


def supervise(job: PackagedJob, settings: JobSettings, *, standby: bool = False) -> int:
    """Run drivers until one succeeds, a restart cannot help, or the strategy gives up.

    Args:
        job: the job.
        settings: its settings, among them the restart strategy.
        standby: keep a second driver that has started its Spark session and waits. It takes over
            without a start; a delay of the strategy then counts from the start of the failed driver.

    Returns:
        The exit code of the last driver.
    """
    failures: list[Failure] = []
    was_fenced = False
    with (
        ThreadPoolExecutor(1, "failures") as recorder,  # no restart waits for the store
        _Stopper(standby=standby) as stopper,
        tempfile.TemporaryDirectory() as folder,
    ):
        termination_file = Path(folder) / "termination"
        environment = {
            **os.environ,
            **as_environment(job.name, settings),
            str(DriverVariable.TERMINATION_FILE): str(termination_file),
        }
        command = [sys.executable, "-m", "sluicegate.cli", "run", job.name, "--once"]
        while True:
            termination_file.unlink(missing_ok=True)
            environment[str(DriverVariable.RESTARTS)] = str(len(failures))
            started = time.monotonic()
            code = stopper.run([*command, *as_arguments(settings, empty=True)], environment)
            ended = time.monotonic()
            reason = termination.read(termination_file)
            if code == 0 or stopper.requested.is_set():
                stopped = stopper.requested.is_set()
                ran_s = ended - started
                recorder.submit(_record_last, settings, code, ran_s, reason, stopped=stopped)
                return code
            failures.append(Failure(ended, ended - started))
            fenced = reason is not None and reason.kind == errors.Fenced.__name__
            once_more = fenced and not was_fenced and _may_have_no_rival(settings, failures[-1])
            was_fenced = fenced
            delay_s, then = (
                (0.0, "restart once, in case the other driver has ended")
                if once_more
                else _restart(settings, failures, code, standby=standby)
            )
            failed = f"attempt {len(failures)} failed after {ended - started:.0f} s with " + (
                f"signal {-code}" if code < 0 else f"exit code {code}"
            )
            level = logging.ERROR if delay_s is None else logging.WARNING
            log.log(level, "%s: %s; %s", failed, reason or "no reason was written", then)
            if settings.checkpoint:
                ran_s = ended - started
                failure = DriverFailure.now(code, ran_s, reason, then=then, delay_s=delay_s)
                recorder.submit(write_failure, settings.checkpoint, failure)
            if delay_s is None or stopper.requested.wait(delay_s):
                return code


def _record_last(
    settings: JobSettings,
    code: int,
    ran_s: float,
    reason: termination.Reason | None,
    *,
    stopped: bool,
) -> None:
    """Record the end of a driver after which none is started: it ended in order, or during a stop."""
    if not settings.checkpoint:
        return
    if code in _STOPPED_CODES:
        write_end(settings.checkpoint, DriverEnd.now(ran_s, stopped=stopped))
    else:
        failure = DriverFailure.now(code, ran_s, reason, then="no restart: a stop was requested")
        write_failure(settings.checkpoint, failure)


def _restart(
    settings: JobSettings, failures: Sequence[Failure], code: int, *, standby: bool
) -> tuple[float | None, str]:
    """Return the delay of the restart in seconds, None for no restart, and what is done, for people."""
    if code in errors.FINAL_EXIT_CODES:
        return None, "a restart cannot help"
    decision = next_restart(settings, failures, random.random)
    if decision.delay_s is None:
        return None, f"no restart ({decision.why})"
    ran_s = failures[-1].ran_s if standby else 0.0
    delay_s = max(0.0, decision.delay_s - ran_s)
    return delay_s, f"restart in {delay_s:.3g} s ({decision.why})"


def _may_have_no_rival(settings: JobSettings, failure: Failure) -> bool:
    """Return whether the driver that fenced this one may have ended, so that a restart can help.

    It may be an orphan, whose supervisor was killed before this driver started: it decides at most
    one more epoch, within the epoch timeout. Or it is the driver before this one, which ended
    without a reply to its decision, and whose request arrived late. If the next driver is fenced
    too, a rival is alive: two supervisors of one checkpoint must not fence each other without end.
    """
    return not settings.timeout_s or failure.ran_s < settings.timeout_s


class _Stopper:
    """Runs drivers, and forwards SIGINT and SIGTERM: the driver then stops at the end of an epoch.

    Args:
        standby: whether to start a second driver when the first has completed an epoch or found no
            input; it takes over when the first has ended.
    """

    def __init__(self, *, standby: bool = False) -> None:
        self.requested = threading.Event()
        self._wants_standby = standby
        self._child: DriverProcess | None = None
        self._undelivered: int | None = None
        self._standby: DriverProcess | None = None

    def __enter__(self) -> Self:
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        return self

    def __exit__(self, *_error: object) -> None:
        for process in (self._child, self._standby):
            if process is not None:
                process.kill()

    def run(self, command: list[str], environment: Mapping[str, str]) -> int:
        """Run a driver, the standby if there is one, and return its exit code."""
        if self.requested.is_set():
            return 0
        child = self._child = self._take_standby() or DriverProcess(command, environment)
        if self._undelivered is not None:  # it came while the driver was being started
            child.send_signal(self._undelivered)
        watch = partial(self._start_standby, child, command, environment)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            return child.wait()
        finally:
            child.kill()  # two drivers must not overlap, though the protocol would allow it
            watcher.join()
            self._child = None
            child.close()

    def _start_standby(
        self, child: DriverProcess, command: list[str], environment: Mapping[str, str]
    ) -> None:
        started = child.await_started()
        if self._wants_standby and started and child.running and not self.requested.is_set():
            restarts = int(environment.get(DriverVariable.RESTARTS, "0")) + 1  # when it takes over
            its_own = {**environment, str(DriverVariable.RESTARTS): str(restarts)}
            self._standby = DriverProcess(command, its_own, standby=True)

    def _take_standby(self) -> DriverProcess | None:
        standby, self._standby = self._standby, None
        if standby is None:
            return None
        if not standby.running:
            log.warning("the standby has ended, so a new driver is started")
            standby.close()
            return None
        log.info("the standby takes over")
        standby.take_over()
        return standby

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.requested.set()
        if self._child is not None:
            self._child.send_signal(number)
        else:
            self._undelivered = number


def drive(job: PackagedJob, settings: JobSettings) -> int:
    """Run one driver in this process until it ends; return 0 or the exit code of its error.

    SIGTERM, or the end of its supervisor, stops it at the end of an epoch. SIGINT (Ctrl-C) cancels
    it, which is the same unless `on_cancel` is 'delete'.
    """
    from sluicegate.spark.run import Run  # noqa: PLC0415 - only a driver needs Spark
    from sluicegate.spark.session import created_session  # noqa: PLC0415
    from sluicegate.spark.start_times import OF_PROCESS, StartPart  # noqa: PLC0415
    from sluicegate.spark.warm_up import prepare_standby  # noqa: PLC0415

    stop_without_supervisor()
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    started = time.monotonic()
    try:
        spark = created_session(job.name)
        writer = None
        if is_standby():
            with OF_PROCESS.part(StartPart.STANDBY):
                writer = prepare_standby(spark, partial(job.build, spark, settings))
                if not await_turn():
                    return 0
            started = time.monotonic()
        writer = writer or job.build(spark, settings)
        if writer.await_promotion():  # in a pod; SIGTERM still ends the process at once
            started = time.monotonic()
        with _queue_signals(signals):
            query: Run = writer.start()
            log.info(
                "%s started in %.1f s, lineage %s",
                job.name,
                time.monotonic() - started,
                query.lineage,
            )
            reported = False
            while not query.await_end(0.2):
                if not reported and query.has_settled:
                    report_started()  # only now: the start of a standby would delay the first epoch
                    reported = True
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
