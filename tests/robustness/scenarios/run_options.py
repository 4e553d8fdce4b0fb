"""What a long run does, and when it ends."""

from __future__ import annotations

import random
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sluicegate.packaged_job import PackagedJob
from sluicegate.settings.restart import EXPONENTIAL
from sluicegate_jobs import ip_count, two_sinks
from tests.robustness.failpoints.actors import Matrix
from tests.robustness.traffic import joined_payments
from tests.robustness.traffic.steady_traffic import access_lines, indicators

JUDGMENT_S = 180.0
"""What a run with an end reserves for reading the rest of the input and for judging it."""

CLEAN_UP_S = 60.0
"""What it reserves for stopping the readers and the servers."""


@dataclass(frozen=True)
class RunJob:
    """A job of the run: its input, and an SQL expression that grows with the rows of an epoch."""

    job: PackagedJob
    records: Callable[[int], Iterator[bytes]]
    amount: str


JOBS = {
    "two_sinks": RunJob(two_sinks.JOB, indicators, "SUM(indicate)"),
    "joined_payments": RunJob(
        joined_payments.JOB, joined_payments.orders_and_payments, "SUM(pairs)"
    ),
    "ip_count": RunJob(ip_count.JOB, access_lines, "SUM(hits)"),
}


ENDLESS_RESTARTS: Mapping[str, Any] = {"restart": EXPONENTIAL, "restart_max_delay_s": 2.0}
"""Settings with which a supervisor restarts drivers without end, whatever the defaults of its job."""


@dataclass(frozen=True)
class RunOptions:
    """What a run does.

    Args:
        seed: of the plan and of the input.
        faults: how many, at most.
        minutes: after which no fault begins, except the first.
        end_minutes: after which the run has ended; see `EndOfRun`.
        job: a key of JOBS.
        delivery: another guarantee than exactly-once shows that the checker finds what it breaks.
        state_backend: where the state is: 'rocksdb', or 'hdfs', which is the JVM heap.
        rate: records per second.
        store: keep the checkpoint in an object store, whose requests fail.
        executors: run executors in processes of their own, which fail.
        network: run in a network namespace, where a driver is cut off.
        brokers: run three brokers, of which one fails.
        supervisor: let `sluicegate run` start and restart the drivers; it fails, or they do.
        machine: let the clock, the disk, the memory and the power of the drivers fail.
        store_machine: keep the checkpoint in an object store, whose server, disk or power fails.
        replica: let MySQL fail over to a replica that lacks the last epochs.
        move: move the job to a new checkpoint at each fault, and kill what moves it.
        standby: keep a standby, which takes over unless its settings are others.
        part: of the matrix, such as '1/4': its first faults are of this quarter of the cells.
        only: cells, of which alone faults are drawn, as `chosen_cells` takes them; empty for all.
    """

    seed: int
    faults: int
    minutes: float
    end_minutes: float
    job: str
    delivery: str
    state_backend: str
    rate: float
    store: bool
    executors: bool
    network: bool
    brokers: bool
    supervisor: bool
    machine: bool
    store_machine: bool
    replica: bool
    move: bool
    standby: bool
    part: str
    only: tuple[str, ...]

    @property
    def in_store(self) -> bool:
        """Whether the checkpoint is in an object store."""
        return self.store or self.store_machine


MATRICES: Mapping[str, Matrix] = {
    "store": Matrix.STORE,
    "executors": Matrix.EXECUTORS,
    "network": Matrix.NETWORK,
    "brokers": Matrix.BROKERS,
    "supervisor": Matrix.SUPERVISOR,
    "machine": Matrix.MACHINE,
    "store_machine": Matrix.STORE_MACHINE,
    "replica": Matrix.REPLICA,
    "move": Matrix.MOVE,
}
"""What the faults of a kind of runs are drawn from."""

KINDS = (*MATRICES, "standby")
"""The options that make a run one of another kind."""


def option_of(kind: str) -> str:
    """Return the option that makes a run one of a kind."""
    return f"--{kind.replace('_', '-')}"


def matrix_of(options: RunOptions | Namespace) -> Matrix:
    """Return what the faults of a run are drawn from."""
    kinds = (matrix for kind, matrix in MATRICES.items() if getattr(options, kind))
    return next(kinds, Matrix.ANY_RUN)


def stages_files(options: RunOptions) -> bool:
    """Return whether a run stages all rows as files, which tasks upload and apply.

    Otherwise the few rows of an epoch are in its record, and the driver applies them: an executor or a
    worker that fails meanwhile has no part in it. Half of the other seeds stage files, for the workers.
    """
    return (
        options.in_store
        or options.executors
        or random.Random(f"files of {options.seed}").random() < 0.5
    )


class OutOfTime(Exception):
    """The run was cut off at its end."""


class EndOfRun:
    """The end of a run, counted from the creation of this object.

    A fault is not waited for any longer when JUDGMENT_S and CLEAN_UP_S are left: the driver then has
    LAST_ROWS_S of them to show rows. A run that has not judged its rows when
    CLEAN_UP_S are left is cut off.

    Args:
        minutes: length of the run.
    """

    def __init__(self, minutes: float) -> None:
        self._cut_off = time.monotonic() + minutes * 60 - CLEAN_UP_S

    def deadline(self, timeout_s: float) -> float:
        """Return when a wait for a fault ends, by time.monotonic()."""
        return min(time.monotonic() + timeout_s, self._cut_off - JUDGMENT_S)

    def faults_over(self) -> bool:
        """Return whether no fault is waited for any longer."""
        return time.monotonic() >= self._cut_off - JUDGMENT_S

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise OutOfTime in the main thread when the time is over, whatever it waits for."""

        def cut_off(*_: object) -> None:
            raise OutOfTime

        before = signal.signal(signal.SIGALRM, cut_off)
        # a timer of 0 would never fire
        signal.setitimer(signal.ITIMER_REAL, max(self._cut_off - time.monotonic(), 0.001))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
