"""`epochs`: describes a streaming query whose every epoch reaches all sinks exactly once."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sluicegate.deployment import promotion
from sluicegate.deployment.environment import DriverEnvironment
from sluicegate.deployment.executors import ExecutorsReporter
from sluicegate.deployment.own_pod import OwnPod
from sluicegate.deployment.progress import ProgressReporter
from sluicegate.errors import SettingsInvalid
from sluicegate.metrics import DriverMetrics
from sluicegate.protocol.job import Job
from sluicegate.savepoints.takeover import take_over_or_isolate, verify_takeover
from sluicegate.settings.epoch import AT_LEAST_ONCE, EpochSettings
from sluicegate.sinks.contract import BoundSink, Sink
from sluicegate.spark import shutdown
from sluicegate.spark.conf import KUBERNETES
from sluicegate.spark.epoch_runner import EpochRunner
from sluicegate.spark.outputs import (
    DEAD_LETTER_SCHEMA,
    Output,
    Outputs,
    arrow_schema,
    frame_of,
    nondeterministic,
)
from sluicegate.spark.ports import QueryContext
from sluicegate.spark.query import EpochsQuery
from sluicegate.spark.run import BackgroundService
from sluicegate.spark.s3a import prepare_store
from sluicegate.spark.session import (
    all_settings,
    check_state_backend,
    log_by_default,
    prepare,
)
from sluicegate.spark.source_offsets import SourceOffsets, source_group
from sluicegate.spark.start_times import OF_PROCESS, StartPart, StartTimes
from sluicegate.spark.warm_up import prepare_standby, start_workers
from sluicegate.storage.driver_start import (
    EXECUTORS,
    SPARK_VERSION,
    DriverStart,
    deployment_settings,
    effective_settings,
    write_start,
)
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.object_store import open_checkpoint
from sluicegate.storage.preflight import verify_conditional_create
from sluicegate.tracing import Tracing

SINGLE_OUTPUT = "rows"
"""The name of an output that is given without one."""

log = logging.getLogger("sluicegate.query")


@dataclass(frozen=True)
class EpochsWriter:
    """A query that is described but not started; the fields are the arguments of `epochs`."""

    outputs: Mapping[str, Output]
    sinks: Sequence[Sink]
    name: str
    checkpoint: str
    dead_letters: Sink | None = None
    settings: EpochSettings = field(default_factory=EpochSettings)
    output_mode: str = "update"
    services: Sequence[BackgroundService] = ()

    def start(self) -> EpochsQuery:
        """Check everything, then start the query.

        Raises:
            PreflightFailed: or a subclass; nothing was started.
            SinkUnavailable: a server does not respond; nothing was started.
            SystemExit: no query starts, because the end of this process was requested, or because
                it only applies decided epochs (`DriverEnvironment.mode`) and has done so.
        """
        self.await_promotion()
        start_workers(self._spark, self._all_sinks())
        spark, context = self.check_and_bind()
        if DriverEnvironment.read().apply_only:
            EpochRunner(spark, context, self.settings.timeout_s).apply_only()
            raise shutdown.Ended
        started = self._effective_settings(spark, context)  # while Spark certainly answers
        query = EpochsQuery(spark, context, self.settings, self.output_mode, self.services)
        write_start(self.checkpoint, DriverStart.now(started, context.start_times.seconds))
        return query

    def await_promotion(self) -> bool:
        """Warm up and wait until the operator promotes this process, if that is a standby in a pod.

        Until then nothing of the checkpoint or of a sink is read or written. `start` calls it.

        Returns:
            Whether it was a standby.
        """
        if not promotion.is_waiting():
            return False
        log_by_default()
        spark = self._spark
        with OF_PROCESS.part(StartPart.STANDBY):
            prepare_standby(spark, lambda: self)
            promotion.await_promotion()
        return True

    def _effective_settings(self, spark: SparkSession, context: QueryContext) -> dict[str, str]:
        conf = {**all_settings(spark), SPARK_VERSION: spark.version}
        sinks = context.job.sinks
        return deployment_settings(DriverEnvironment.read()) | effective_settings(
            self.settings, sinks, context.dead_letters, self.output_mode, conf
        )

    def check_and_bind(self) -> tuple[SparkSession, QueryContext]:
        """Check everything, claim the checkpoint and bind the sinks."""
        log_by_default()
        # within Kubernetes the label is the resource's name, as in the operator's metrics
        environment, start_times = DriverEnvironment.read(), StartTimes(OF_PROCESS.seconds)
        label = environment.job.rpartition("/")[2] or self.name
        group = source_group(label, self.settings)
        spark = self._spark
        with start_times.part(StartPart.STORE):
            prepare_store(spark, self.checkpoint)
            verify_conditional_create(self.checkpoint)
            store = open_checkpoint(self.checkpoint)
            check_state_backend(store, self.settings.state_backend)
            prepare(spark, self.settings.state_backend)
            lineage = claim_lineage(store, self.name)
        with start_times.part(StartPart.SINKS):
            outputs = Outputs(self.outputs, *self._bind(lineage.id))
            if len(names := nondeterministic(self.outputs)) > 1:
                log.warning(
                    "outputs %s are not deterministic, and each evaluates its plan by itself: a random "
                    "value that selects between them differs, so a row may be in both or in neither. "
                    "Derive it from the row, for example by xxhash64",
                    ", ".join(names),
                )
            bound = {sink.id: sink for sink in outputs.sinks()}
            take_over_or_isolate(store, lineage, bound, self._bound_by_id)
        metrics = DriverMetrics(label, lineage.id, bound, environment.restarts)
        metrics.start_took(start_times.seconds)
        metrics.serve(self.settings.metrics_port)
        return spark, QueryContext(
            job=Job(
                name=self.name,
                lineage=lineage.id,
                first_epoch=lineage.first_epoch,
                sinks={sink.id: sink.binding for sink in bound.values()},
                delivery=self.settings.delivery,
                # without markers each crash would repeat an epoch that is not marked as applied
                overlap=self.settings.overlap and self.settings.delivery != AT_LEAST_ONCE,
                redoable=frozenset(sink.id for sink in self._all_sinks() if sink.redoable),
            ),
            outputs=outputs,
            sinks=bound,
            dead_letters=self.dead_letters.id if self.dead_letters else None,
            checkpoint=self.checkpoint,
            store=store,
            tracing=Tracing(self.name),
            inline_bytes=self.settings.inline_bytes,
            max_part_bytes=self.settings.max_part_bytes,
            check_taken_over=partial(verify_takeover, store, lineage, self._bound_by_id),
            progress=ProgressReporter.of_pod(),
            executors=_executors_reporter(spark),
            metrics=metrics,
            source_offsets=SourceOffsets.of(spark, group, metrics) if group else None,
            start_times=start_times,
        )

    def _bound_by_id(self, lineage: str) -> dict[str, BoundSink]:
        by_output, dead_letters = self._bind(lineage)
        bound = [sink for sinks in by_output.values() for sink in sinks]
        return {sink.id: sink for sink in [*bound, *([dead_letters] if dead_letters else [])]}

    @property
    def _spark(self) -> SparkSession:
        return frame_of(next(iter(self.outputs.values()))).sparkSession

    def _all_sinks(self) -> list[Sink]:
        return [*self.sinks, *([self.dead_letters] if self.dead_letters else [])]

    def _bind(self, lineage: str) -> tuple[dict[str, list[BoundSink]], BoundSink | None]:
        """Bind the sinks of each output, and the dead-letter sink if it takes no output."""
        ids = [sink.id for sink in self._all_sinks()]
        if len(set(ids)) < len(ids):
            raise SettingsInvalid(
                f"two sinks have the same id: {', '.join(sorted(ids))}",
                data="nothing was started",
                do="give one of them another `id=`; it must stay the same across restarts",
            )
        bound: dict[str, list[BoundSink]] = {name: [] for name in self.outputs}
        dead_letters: BoundSink | None = None
        timeout_s = self.settings.apply_timeout_s
        for sink in self._all_sinks():
            if sink is self.dead_letters and sink.of is None:
                schema = DEAD_LETTER_SCHEMA
                dead_letters = sink.bind(schema, lineage=lineage, apply_timeout_s=timeout_s)
                continue
            output = sink.of or next(iter(self.outputs))
            if output not in self.outputs:
                raise SettingsInvalid(
                    f"sink {sink.id} takes output {output!r}; the outputs are "
                    f"{', '.join(self.outputs)}",
                    data="nothing was started",
                    do="name an output of the job in `of=`",
                )
            schema = arrow_schema(self.outputs[output])
            bound[output].append(sink.bind(schema, lineage=lineage, apply_timeout_s=timeout_s))
        return bound, dead_letters


def _executors_reporter(spark: SparkSession) -> ExecutorsReporter | None:
    """Return what reports the executors of a driver in a pod; None of one that runs all tasks itself."""
    pod, context = OwnPod.read(), spark.sparkContext
    if pod is None or not (context.master or "").startswith(KUBERNETES):
        return None
    wanted = int(context.getConf().get(EXECUTORS, "0") or 0)
    return ExecutorsReporter(pod, wanted, partial(count_executors, context))


def count_executors(context: SparkContext) -> int:
    """Return how many executors are connected to a driver."""
    scala = context._jsc.sc()  # noqa: SLF001 - pyspark's tracker does not list executors
    return int(scala.getExecutorMemoryStatus().size()) - 1  # one of them is the driver


def epochs(  # noqa: PLR0913 - keyword arguments, one for each thing that a job defines
    outputs: Output | Mapping[str, Output],
    *,
    sinks: Sequence[Sink],
    name: str,
    checkpoint: str,
    trigger: str | None = None,
    dead_letters: Sink | None = None,
    settings: EpochSettings | None = None,
    output_mode: str = "update",
    services: Sequence[BackgroundService] = (),
) -> EpochsWriter:
    """Describe a query whose every epoch reaches all sinks together, exactly once.

    Args:
        outputs: a streaming DataFrame, or several by name; each sink then selects one with `of=`.
        sinks: the destinations of the rows, applied in this order.
        name: the job's name; the checkpoint belongs to it.
        checkpoint: a path or `s3://bucket/prefix`, used by this job alone. If the environment sets
            the checkpoint or settings, those win (`sluicegate.deployment.environment`).
        trigger: short for `settings.interval`.
        dead_letters: a sink for rows that another sink, or the job (`refuse`), refuses: a KafkaSink
            with value='value', or a table with the columns of a dead letter
            (`sluicegate.dead_letters.letter`). With `of=` it also takes that output.
        settings: see `EpochSettings`; a packaged job's `JobSettings` are accepted too.
        output_mode: as Spark's: 'update' (default; rows that changed), 'append' (rows that will not
            change again) or 'complete' (all rows of an aggregation, in each epoch).
        services: run in the driver as long as the query, such as a receiver of lines.

    Raises:
        SettingsInvalid: a value is invalid.
    """
    if output_mode not in ("update", "append", "complete"):
        raise SettingsInvalid(
            f"output_mode is {output_mode!r}",
            data="nothing was started",
            do="use 'update', 'append' or 'complete'",
        )
    settings = settings or EpochSettings()
    if trigger is not None:
        settings = dataclasses.replace(settings, interval=trigger)
    checkpoint, settings = DriverEnvironment.read().override(checkpoint, settings)
    by_name = outputs if isinstance(outputs, Mapping) else {SINGLE_OUTPUT: outputs}
    return EpochsWriter(
        by_name,
        tuple(sinks),
        name,
        checkpoint,
        dead_letters,
        settings,
        output_mode,
        tuple(services),
    )
