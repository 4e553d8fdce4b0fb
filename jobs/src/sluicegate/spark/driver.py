"""One epoch in the driver: the protocol's ports over Spark, with spans and a progress line.

`EpochDriver.run` is what foreachBatch calls. Not here: starting and stopping the query
(`query`), what staging tasks do (`staging`).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

from opentelemetry.trace import Span
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sluicegate.protocol import finishing
from sluicegate.protocol.coordinator import Job, Settled, apply, finish, owed, settle
from sluicegate.protocol.effects import Steps, drive
from sluicegate.protocol.errors import RowRefused, SluicegateError, StageFailed
from sluicegate.protocol.ports import Plan, Ports, Staged
from sluicegate.protocol.record import LETTERS, ROWS_IN, EpochRecord, EventTime
from sluicegate.sinks.contract import BoundSink, Receipt
from sluicegate.spark import staging
from sluicegate.spark.applying import AppliedSinks, MarkerKeeper
from sluicegate.spark.behind import Behind
from sluicegate.spark.causes import raised_in_task
from sluicegate.spark.outputs import Outputs
from sluicegate.spark.plan import RunningPlan, check_state
from sluicegate.spark.staging import StageOrder, stage_with
from sluicegate.storage.epoch_log import StoredEpochLog, StoredOffsets
from sluicegate.storage.objects import Objects
from sluicegate.tracing import Tracing
from sluicegate.tracing.progress import Progress

log = logging.getLogger("sluicegate.epoch")


@dataclass(frozen=True)
class Wiring:
    """What an epoch driver is made of; built by `query`."""

    job: Job
    outputs: Outputs
    sinks: Mapping[str, BoundSink]
    dead_letters: str | None
    checkpoint: str
    objects: Objects
    tracing: Tracing
    inline_bytes: int
    progress: Progress = field(default_factory=lambda: Progress(None))


@dataclass
class Times:
    """Milliseconds of an epoch's phases and what else the progress line says.

    Args:
        phases: ms by name.
        lag: records that the sources still hold.
        idle_since_ns: when the epoch before ended; None at the first.
    """

    phases: dict[str, float] = field(default_factory=dict)
    lag: int = 0
    idle_since_ns: int | None = None
    began_ns: int = field(default_factory=time.time_ns)

    def add(self, phase: str, start_ns: int) -> None:
        self.phases[phase] = self.phases.get(phase, 0.0) + (time.time_ns() - start_ns) / 1e6

    def __str__(self) -> str:
        phases = ", ".join(f"{phase} {ms:.0f} ms" for phase, ms in self.phases.items())
        return f"{phases}; lag {self.lag:,}{self._busy()}"

    def _busy(self) -> str:
        """Return the share of the time since the last epoch that this one took."""
        if self.idle_since_ns is None:
            return ""
        now = time.time_ns()
        busy = (now - self.began_ns) / max(1, now - self.idle_since_ns)
        return f", busy {min(1.0, busy):.0%}"


class EpochDriver:
    """Runs epochs, one after another, on the thread of Spark's callback.

    Args:
        spark: the session.
        wiring: what the job is made of.
        deadline: the time that an apply behind the stream has, by epoch (rule 18).
    """

    def __init__(
        self,
        spark: SparkSession,
        wiring: Wiring,
        deadline: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        self._spark, self._wiring, self._deadline = spark, wiring, deadline
        self._log = _TracedLog(StoredEpochLog(wiring.objects), wiring.tracing)
        self._offsets = StoredOffsets(wiring.objects)
        self._primed = False
        self._keeper = MarkerKeeper(wiring.sinks)
        self._behind = Behind()
        self._newest: Settled | None = None
        self._ended_ns: int | None = None

    def recover(self) -> None:
        """Apply what a killed driver owes, before the query starts; see `coordinator.owed`."""
        self._recover(owed(self._wiring.job))
        if self._wiring.progress.wanted:
            self._wiring.progress.before(self._everywhere())

    def finish_decided(self) -> int | None:
        """Apply what is decided, as no query follows; see `protocol.finishing`.

        Returns:
            The epoch that was applied, None if all were in every sink.
        """
        settled = self._recover(finishing.unapplied(self._wiring.job))
        if settled is None:
            return None
        drive(finishing.note(settled.record), self._ports(_NoPlan(), Times()))
        return settled.record.epoch

    def _recover(self, steps: Steps[Settled | None]) -> Settled | None:
        wiring, times = self._wiring, Times()
        ports = self._ports(_NoPlan(), times)
        settled = drive(steps, ports)
        if settled is not None:
            epoch = settled.record.epoch
            with wiring.tracing.root("epoch", epoch=epoch, lineage=wiring.job.lineage) as span:
                self._apply(settled, ports, times, span)
        return settled

    def _everywhere(self) -> int | None:
        """Return the last epoch that is in every sink, by the log."""
        newest = self._log.newest()
        if newest is None:
            return self._wiring.job.first_epoch - 1 if self._wiring.job.first_epoch else None
        applied = self._newest is not None and self._newest.record.epoch == newest
        if applied or self._offsets.committed(newest):
            return newest
        return newest - 1 if newest else None

    def run(self, batch: DataFrame, epoch: int) -> None:
        """Take one epoch to every sink; see `coordinator.run_epoch` for the errors."""
        wiring, times = self._wiring, Times(idle_since_ns=self._ended_ns)
        self._log.times = times
        with wiring.tracing.root("epoch", epoch=epoch, lineage=wiring.job.lineage) as span:
            ports = self._ports(self._plan(batch, times), times)
            settled = drive(settle(wiring.job, epoch), ports)
        work = partial(self._apply, settled, ports, times, span)
        if wiring.job.overlap:
            self._behind.start(work)
        else:
            work()
        self._ended_ns = time.time_ns()

    def _apply(self, settled: Settled, ports: Ports, times: Times, span: Span) -> int:
        wiring, record = self._wiring, settled.record
        with self._deadline(record.epoch), wiring.tracing.within(span):
            drive(apply(wiring.job, settled), ports)
            span.set_attributes({"attempt": record.attempt, "replayed": settled.replayed})
        self._keeper.keep(record)
        self._newest = settled
        wiring.progress.epoch(record.epoch)
        log.info("%s", _progress(settled, times))
        return record.epoch

    def failed(self) -> bool:
        """Return whether an apply behind the stream has failed, so that the query must end."""
        return self._behind.failed()

    def finish(self) -> None:
        """Wait for what is behind the stream, and note that nothing is owed to any sink.

        Raises:
            SluicegateError: what ended the apply; the next start makes it good.
        """
        self._behind.settled()
        if self._newest is not None:
            drive(finish(self._newest), self._ports(_NoPlan(), Times()))

    def close(self) -> None:
        """Let go of the thread behind the stream."""
        self._behind.close()

    def _ports(self, plan: Plan, times: Times) -> Ports:
        wiring = self._wiring
        sinks = AppliedSinks(
            wiring.sinks, wiring.checkpoint, self._spark, self._applied, self._behind.settled
        )
        return Ports(
            log=self._log,
            offsets=self._offsets,
            plan=plan,
            sinks=_TracedSinks(sinks, wiring.tracing, times),
            clock=_SystemClock(),
        )

    def _plan(self, batch: DataFrame, times: Times) -> Plan:
        plan = RunningPlan(self._spark)
        if not self._primed:
            plan.prime_sources()
            self._primed = True
        times.lag = plan.lag()
        return BatchPlan(plan, self._wiring, batch, times)

    def _applied(self, sink: str, part: int, receipt: Receipt) -> None:
        for step in receipt.steps:
            self._wiring.tracing.record(step.name, step.start_ns, step.end_ns, sink=sink, part=part)


def _progress(settled: Settled, times: Times) -> str:
    record = settled.record
    rows = ", ".join(f"{sink} {record.rows(sink)}" for sink in record.sinks)
    how = "replayed" if settled.replayed else "committed"
    counted = "".join(f", {said}" for said in _counted(record.counts))
    return f"epoch {record.epoch} {how}: {rows} rows{counted}; {times}"


def _counted(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield what an epoch's counts say beyond its rows by sink."""
    if ROWS_IN in counts:
        yield f"{counts[ROWS_IN]} in"
    letters = {k.removeprefix(LETTERS): n for k, n in counts.items() if k.startswith(LETTERS)}
    if letters:
        yield "dead letters: " + ", ".join(f"{n} {kind}" for kind, n in letters.items())


class _TracedLog:
    """The epoch log with the decision as a span."""

    def __init__(self, stored: StoredEpochLog, tracing: Tracing) -> None:
        self._stored, self._tracing = stored, tracing
        self.times = Times()
        self.read, self.newest = stored.read, stored.newest
        self.discarded, self.tidy = stored.discarded, stored.tidy
        self.finished, self.finish = stored.finished, stored.finish
        self.create_seal, self.read_any = stored.create_seal, stored.read_any

    def create(self, record: EpochRecord) -> bool:
        start = time.time_ns()
        sizes = {
            "rows": sum(c.rows for c in record.chunks),
            "bytes": sum(c.size for c in record.chunks),
        }
        with self._tracing.span("decide", epoch=record.epoch, attempt=record.attempt, **sizes):
            created = self._stored.create(record)
        self.times.add("decide", start)
        return created


class _TracedSinks:
    """The sinks with each apply as a span."""

    def __init__(self, applied: AppliedSinks, tracing: Tracing, times: Times) -> None:
        self._applied, self._tracing, self._times = applied, tracing, times
        self.settled = applied.settled

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        start = time.time_ns()
        with self._tracing.span("apply", epoch=record.epoch, sink=sink, rows=record.rows(sink)):
            self._applied.apply(record, sink, parts, discard=discard)
        self._times.add(f"apply {sink}", start)


class _SystemClock:
    """Time and randomness of this machine."""

    now_ms = staticmethod(lambda: time.time_ns() // 1_000_000)
    pause = staticmethod(time.sleep)
    new_attempt = staticmethod(lambda: uuid.uuid4().hex)
    traceparent = staticmethod(Tracing.traceparent)


class _NoPlan:
    """`ports.Plan` outside of an epoch: nothing that is decided needs one."""

    def stage(self, epoch: int, attempt: str) -> Staged:
        raise AssertionError(f"epoch {epoch} is staged as {attempt} without a plan")

    def check_state(self, epoch: int) -> None:
        raise AssertionError(f"epoch {epoch} has no plan")

    def feed(self, event_times: tuple[EventTime, ...]) -> None:
        """Spark runs on from the epoch after, whose offsets log holds the watermark."""


class BatchPlan:
    """`ports.Plan` of one foreachBatch call; without a running plan there are no times and no state."""

    def __init__(
        self, plan: RunningPlan | None, wiring: Wiring, batch: DataFrame, times: Times
    ) -> None:
        self._plan, self._wiring, self._batch, self._times = plan, wiring, batch, times

    def stage(self, epoch: int, attempt: str) -> Staged:
        start, wiring = time.time_ns(), self._wiring
        order = StageOrder(
            checkpoint=wiring.checkpoint,
            epoch=epoch,
            attempt=attempt,
            inline_bytes=wiring.inline_bytes,
            sinks=tuple(wiring.outputs.sinks()),
            dead_letters=wiring.dead_letters,
        )
        with wiring.tracing.span("stage", epoch=epoch, attempt=attempt):
            before = self._plan.rows_in() if self._plan else 0
            watermark = self._plan.late_watermark_ms() if self._plan else None
            rows = wiring.outputs.chosen(self._batch, watermark)
            try:
                results = rows.mapInArrow(stage_with(order), staging.RESULT_DDL).toArrow()
            except (PySparkException, Py4JJavaError) as error:
                raise _stage_failed(epoch, error) from error
            parts = staging.parse(results)
            for part in parts:
                if part.chunk is not None:
                    chunk = part.chunk
                    wiring.tracing.record(
                        "stage chunk",
                        part.start_ns,
                        part.end_ns,
                        sink=chunk.sink,
                        part=chunk.part,
                        rows=chunk.rows,
                    )
        self._times.add("stage", start)
        refused = sum(part.refused for part in parts)
        if refused and wiring.dead_letters is None:
            reason = next(part.reason for part in parts if part.refused)
            raise RowRefused(
                f"epoch {epoch}: {refused} rows are refused; the first: {reason}",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="give the job a dead-letter sink, widen the column or limit, or filter such rows",
            )
        chunks = tuple(part.chunk for part in parts if part.chunk is not None)
        counts = {"refused": refused}
        if self._plan:
            counts |= {ROWS_IN: self._plan.rows_in() - before}
        kinds = sum((Counter(part.kinds) for part in parts), Counter[str]())
        counts |= {f"{LETTERS}{kind}": number for kind, number in sorted(kinds.items())}
        return Staged(chunks, self._plan.event_times() if self._plan else (), counts)

    def check_state(self, epoch: int) -> None:  # noqa: ARG002 - the plan knows its version
        if self._plan:
            check_state(self._wiring.objects, self._plan.state_operators())

    def feed(self, event_times: tuple[EventTime, ...]) -> None:
        if self._plan:
            self._plan.feed(event_times)


def _stage_failed(epoch: int, error: Exception) -> SluicegateError:
    ours = raised_in_task(str(error), f"epoch {epoch}")
    if ours is not None:
        return ours
    return StageFailed(
        f"epoch {epoch} could not be staged: {cause_of(str(error))[:500]}",
        data="the epoch is undecided and nothing of it is visible; its input is read again",
        do="restart the driver; if it fails again, the cause is in the job or its source",
    )


def cause_of(text: str) -> str:
    """Return the line of Spark's error that says why: a Python worker's own error, where there is one."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if "Traceback (most recent" in line), None)
    if start is not None:
        # the frames are indented, what was raised is not
        raised = (line for line in lines[start + 1 :] if line and not line[0].isspace())
        return next(raised, text).strip()
    named = (line for line in lines if "Error" in line or "Exception" in line)
    return next(named, text).strip()
