"""`epochs`: a streaming DataFrame becomes a query whose every epoch reaches all sinks exactly once.

Wires settings, lineage, sinks and the epoch driver; stops at an epoch's end. Not here: one epoch
(`driver`), starting again after a failure (`sluicegate run`, the operator).
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluicegate.checkpoint.preflight import require_create_once
from sluicegate.checkpoint.takeover import settle_with_parent
from sluicegate.protocol import failpoints
from sluicegate.protocol.coordinator import Job
from sluicegate.protocol.errors import SettingsInvalid, SluicegateError
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.settings.told import Told
from sluicegate.sinks.contract import BoundSink, Sink
from sluicegate.spark import ending
from sluicegate.spark.applying import close_writers
from sluicegate.spark.beside import Beside
from sluicegate.spark.causes import translated
from sluicegate.spark.deadline import deadline
from sluicegate.spark.departure import Departure
from sluicegate.spark.driver import EpochDriver, Wiring
from sluicegate.spark.finishing import finish_decided
from sluicegate.spark.outputs import LETTERS, Output, Outputs, arrow_schema, frame_of
from sluicegate.spark.pace import Pace
from sluicegate.spark.resting import rests
from sluicegate.spark.s3 import checkpoint_files, prepare_store, spark_url
from sluicegate.spark.session import check_state_backend, prepare
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.objects import open_objects
from sluicegate.tracing import Tracing
from sluicegate.tracing.progress import Progress

log = logging.getLogger("sluicegate.query")

_ALL = "rows"

_MOMENT_S = 0.2
"""How long a failed apply behind the stream may go unnoticed."""

_COMMIT_S = 10.0
"""How long a stop waits for Spark's own commit of an epoch; without it the epoch is replayed."""


@dataclass(frozen=True)
class EpochsWriter:
    """A query that is described and not started."""

    outputs: Mapping[str, Output]
    sinks: Sequence[Sink]
    name: str
    checkpoint: str
    dead_letters: Sink | None = None
    settings: EpochSettings = field(default_factory=EpochSettings)
    output_mode: str = "update"
    beside: Beside | None = None

    def start(self) -> EpochsQuery:
        """Check everything, then start the query.

        Raises:
            PreflightFailed: or one of its kinds; nothing was started.
            SinkUnavailable: a server does not answer; nothing was started.
            SystemExit: no query is to be started: this process was asked to end, or is there only
                to finish what is decided (`Told.purpose`), and has.
        """
        spark, wiring = self.wired()
        if Told.read().finishes:
            finish_decided(spark, wiring, self.settings.timeout_s)
            raise ending.Ended
        return EpochsQuery(spark, wiring, self)

    def wired(self) -> tuple[SparkSession, Wiring]:
        """Check everything; return what a driver is made of. For `start`, and `sluicegate.spark.batch`."""
        spark = frame_of(next(iter(self.outputs.values()))).sparkSession
        prepare_store(spark, self.checkpoint)
        require_create_once(self.checkpoint)
        objects = open_objects(self.checkpoint)
        check_state_backend(objects, self.settings.state_backend)
        prepare(spark, self.settings.state_backend)
        lineage = claim_lineage(objects, self.name)
        takers = self._bind(lineage.id)
        outputs = Outputs(self.outputs, takers, self._bind_letters(lineage.id))
        bound = {sink.id: sink for sink in outputs.sinks()}
        settle_with_parent(objects, lineage, bound, self._bound_for)
        return spark, Wiring(
            job=Job(
                name=self.name,
                lineage=lineage.id,
                first_epoch=lineage.first_epoch,
                sinks={sink.id: sink.binding for sink in bound.values()},
                delivery=self.settings.delivery,
                overlap=self.settings.overlap,
                redoable=frozenset(sink.id for sink in self._all_sinks() if sink.redoable),
            ),
            outputs=outputs,
            sinks=bound,
            dead_letters=self.dead_letters.id if self.dead_letters else None,
            checkpoint=self.checkpoint,
            objects=objects,
            tracing=Tracing(self.name),
            inline_bytes=self.settings.inline_bytes,
            progress=Progress.of_pod(),
        )

    def _bound_for(self, lineage: str) -> dict[str, BoundSink]:
        return {sink.id: sink for sinks in self._bind(lineage).values() for sink in sinks}

    def _all_sinks(self) -> list[Sink]:
        return [*self.sinks, *([self.dead_letters] if self.dead_letters else [])]

    def _bind(self, lineage: str) -> dict[str, list[BoundSink]]:
        ids = [sink.id for sink in self._all_sinks()]
        if len(set(ids)) < len(ids):
            raise SettingsInvalid(
                f"two sinks share an id: {', '.join(sorted(ids))}",
                data="nothing was started",
                do="give one of them another `id=`; it must stay the same over restarts",
            )
        takers: dict[str, list[BoundSink]] = {name: [] for name in self.outputs}
        for sink in self._all_sinks():
            if sink is self.dead_letters and sink.of is None:
                continue
            output = sink.of or next(iter(self.outputs))
            if output not in self.outputs:
                raise SettingsInvalid(
                    f"sink {sink.id} takes output {output!r}; there is {', '.join(self.outputs)}",
                    data="nothing was started",
                    do="name an output of the job in `of=`",
                )
            schema = arrow_schema(self.outputs[output])
            bound = sink.bind(
                schema, lineage=lineage, apply_timeout_s=self.settings.apply_timeout_s
            )
            takers[output].append(bound)
        return takers

    def _bind_letters(self, lineage: str) -> BoundSink | None:
        """Bind the dead letters' sink if it takes no output."""
        sink = self.dead_letters
        if sink is None or sink.of is not None:
            return None
        timeout_s = self.settings.apply_timeout_s
        return sink.bind(LETTERS, lineage=lineage, apply_timeout_s=timeout_s)


def epochs(  # noqa: PLR0913 - all by keyword, one for each thing a job must say
    outputs: Output | Mapping[str, Output],
    *,
    sinks: Sequence[Sink],
    name: str,
    checkpoint: str,
    trigger: str | None = None,
    dead_letters: Sink | None = None,
    settings: EpochSettings | None = None,
    output_mode: str = "update",
    beside: Beside | None = None,
) -> EpochsWriter:
    """Describe a query whose every epoch reaches all sinks together, exactly once.

    Args:
        outputs: a streaming DataFrame, or several by name; each sink then says `of=` which.
        sinks: where the rows go; applied in this order.
        name: the job's name; the checkpoint belongs to it.
        checkpoint: a path or `s3://bucket/prefix`, of this job alone. It and the settings are those
            of the environment where that gives any (`sluicegate.settings.told`).
        trigger: short for `settings.interval`.
        dead_letters: a sink for rows that another sink, or the job (`refuse`), refuses: a KafkaSink
            with value='value', or a table with the columns of `spark.letters`. With `of=` it takes
            that output too.
        settings: see `EpochSettings`; a job's own `JobSettings` will do.
        output_mode: 'update' (default: rows that have changed), 'append' (rows that will not change
            again) or 'complete' (all rows of an aggregation, in each epoch), as Spark's.
        beside: runs beside the query for as long as it runs, such as a receiver of lines.

    Raises:
        SettingsInvalid: a value cannot work.
    """
    if output_mode not in ("update", "append", "complete"):
        raise SettingsInvalid(
            f"output_mode {output_mode!r}", do="use 'update', 'append' or 'complete'"
        )
    given = settings or EpochSettings()
    if trigger is not None:
        given = dataclasses.replace(given, interval=trigger)
    checkpoint, given = Told.read().over(checkpoint, given)
    named = outputs if isinstance(outputs, Mapping) else {_ALL: outputs}
    return EpochsWriter(
        named, tuple(sinks), name, checkpoint, dead_letters, given, output_mode, beside
    )


class _StopRequested(Exception):
    """Ends the query between two epochs."""


class EpochsQuery:
    """A running query. Made by `EpochsWriter.start`."""

    def __init__(self, spark: SparkSession, wiring: Wiring, writer: EpochsWriter) -> None:
        settings = writer.settings
        self._wiring, self._settings, self._beside = wiring, settings, writer.beside
        self._driver = EpochDriver(spark, wiring, self._deadline)
        self._departure = Departure(wiring.checkpoint, wiring.objects, wiring.job.lineage)
        self._gate = threading.Lock()
        self._pace = Pace(settings)
        self._stopping = False
        self._done: int | None = None
        self._error: SluicegateError | None = None
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001 - its pid
        failpoints.hook("kill-jvm", jvm.kill)
        stream = (
            wiring.outputs.stream()
            .writeStream.outputMode(writer.output_mode)
            .queryName(wiring.job.name)
            .option("checkpointLocation", spark_url(wiring.checkpoint))
            .foreachBatch(self._run)
        )
        triggered = (
            stream.trigger(availableNow=True)
            if settings.interval == AVAILABLE_NOW
            else stream.trigger(processingTime=settings.interval)
        )
        self._driver.recover()
        ending.enter(self)
        try:
            if self._beside is not None:
                self._beside.start(wiring.objects)
            with checkpoint_files(spark, wiring.checkpoint):
                self._query: StreamingQuery = triggered.start()
        except BaseException:
            ending.leave(self)
            raise

    @property
    def lineage(self) -> str:
        """The id of the checkpoint's history."""
        return self._wiring.job.lineage

    @property
    def is_active(self) -> bool:
        """Whether the query is running."""
        return bool(self._query.isActive)

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Wait until the query ends; True if it has.

        Raises:
            SluicegateError: what ended it, unless it was asked to stop or has read all.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._ended(deadline):
            if self._must_end():
                self._halt()
            elif deadline is not None and time.monotonic() >= deadline:
                return False
            elif self._wiring.progress.due() and rests(self._query):
                self._wiring.progress.idle()
        self._end()
        if self._error is not None:
            raise self._error
        return True

    def _must_end(self) -> bool:
        asked = ending.asked() or self._departure.asked()
        return asked or self._driver.failed() or self._beside_failed()

    def _ended(self, deadline: float | None) -> bool:
        """Wait for the query's end, at most for a moment: an apply behind it may fail meanwhile."""
        left = _MOMENT_S if deadline is None else deadline - time.monotonic()
        try:
            # Spark takes fractions of a second; its annotation says whole ones
            moment = max(0.001, min(left, _MOMENT_S))
            return self._query.awaitTermination(moment) is not False  # type: ignore[arg-type]
        except StreamingQueryException as error:
            self._settle_error(error)
            return True

    def _beside_failed(self) -> bool:
        failure = None if self._beside is None else self._beside.failure()
        self._error = self._error or failure
        return failure is not None

    def _halt(self) -> None:
        """Stop the query between two epochs."""
        self._stopping = True
        if self._beside is not None:
            self._beside.stop()
        with self._gate:
            self._await_commit()
            self._query.stop()

    def stop(self) -> None:
        """Stop at an epoch's end: the running one is finished, the next is not begun.

        `StreamingQuery.stop` during a Python callback breaks the stream's thread (and cannot
        cancel it), so it is called only while none runs, and none can begin.
        """
        self._halt()
        self._end()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stop for good: as `stop`, then remove the checkpoint if `on_cancel` is 'delete'.

        Raises:
            SluicegateError: what ended the query instead; the checkpoint is retained.
            StoreUnavailable: the checkpoint is removed in part; remove the rest by hand.
        """
        self.stop()
        if self._settings.on_cancel == "delete":
            self._wiring.objects.clear()
            log.info("the checkpoint %s is deleted", self._wiring.checkpoint)

    def _await_commit(self) -> None:
        """Let Spark note the epoch that is in, or the next start would have it to replay."""
        deadline = time.monotonic() + _COMMIT_S
        while self._done is not None and self.is_active and time.monotonic() < deadline:
            if self._wiring.objects.read(f"commits/{self._done}") is not None:
                return
            time.sleep(0.02)

    def _run(self, batch: DataFrame, epoch: int) -> None:
        """The foreachBatch callback."""
        with self._entered():
            try:
                self._pace.run(epoch, partial(self._try, batch, epoch))
                self._done = epoch
            except SluicegateError as error:
                self._error = error
                raise
            finally:
                self._pace.ended()

    def _try(self, batch: DataFrame, epoch: int) -> None:
        with self._deadline(epoch):
            self._driver.run(batch, epoch)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Hold the gate for an epoch; `stop` holds it while it stops the query."""
        while not self._pace.rested() or not self._gate.acquire(timeout=0.05):
            if self._stopping:
                raise _StopRequested
        try:
            if self._stopping:
                raise _StopRequested
            yield
        finally:
            self._gate.release()

    def _deadline(self, epoch: int) -> AbstractContextManager[None]:
        return deadline(epoch, self._settings.timeout_s)

    def _settle_error(self, error: StreamingQueryException) -> None:
        if self._stopping and "_StopRequested" in str(error):
            return
        if self._error is None:
            self._error = translated(error)

    def _end(self) -> None:
        """Wait for what is beside and behind the stream, and let go of everything."""
        try:
            self._let_go()
        finally:
            ending.leave(self)

    def _let_go(self) -> None:
        if self._beside is not None:
            self._beside.stop()
        try:
            self._driver.finish()
        except SluicegateError as error:
            self._error = self._error or error
        self._driver.close()
        close_writers()
        self._error = self._departure.leave(self._error)
        self._wiring.progress.close()
        self._wiring.tracing.close()
