"""`batch`: a plain DataFrame reaches all sinks exactly once, as epoch 0 of its own lineage.

It uses the same coordinator, record and markers as a stream, without Spark's streaming engine.
`offsets/0` describes the input and is created once, so that a rerun is known to read the same input.
`commits/0` proves that every sink has the batch. A rerun after that changes nothing. A rerun after a
crash applies what was decided, or runs the plan again if nothing was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sluicegate.deployment.environment import DriverEnvironment
from sluicegate.errors import InputChanged, SettingsInvalid, SluicegateError, StageFailed
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.sinks.contract import Sink
from sluicegate.spark import shutdown
from sluicegate.spark.apply import close_writers
from sluicegate.spark.epoch_runner import EpochRunner
from sluicegate.spark.epochs import SINGLE_OUTPUT, EpochsWriter
from sluicegate.spark.outputs import frame_of
from sluicegate.spark.pacing import Pace
from sluicegate.spark.ports import BatchPlan, EpochTimings, QueryContext
from sluicegate.spark.run import Run
from sluicegate.spark.watch import deadline
from sluicegate.storage.lineage import delete_checkpoint

log = logging.getLogger("sluicegate.query")

_EPOCH = 0
_OFFSETS, _COMMIT = f"offsets/{_EPOCH}", f"commits/{_EPOCH}"
_COMMIT_CONTENT = b"v1\n{}"


@dataclass(frozen=True)
class BatchWriter(EpochsWriter):
    """A batch that is described but not started; the fields are the arguments of `batch`."""

    inputs: str | None = None

    def start(self) -> BatchRun:  # type: ignore[override] # a `Run` too, without a StreamingQuery
        """Check everything, then start the batch in a thread; errors are those of `epochs`."""
        spark, context = self.check_and_bind()
        if DriverEnvironment.read().apply_only:
            runner = EpochRunner(spark, context, self.settings.timeout_s)
            if runner.apply_only() is not None:
                context.store.create(_COMMIT, _COMMIT_CONTENT)
            raise shutdown.Ended
        return BatchRun(spark, context, self.settings, self.inputs)


def batch(  # noqa: PLR0913 - keyword arguments, one for each thing that a job defines
    outputs: DataFrame | Mapping[str, DataFrame],
    *,
    sinks: Sequence[Sink],
    name: str,
    checkpoint: str,
    dead_letters: Sink | None = None,
    settings: EpochSettings | None = None,
    inputs: str | None = None,
) -> BatchWriter:
    """Describe a batch that reaches all sinks together, exactly once, however often it runs.

    It is one epoch. Each part of a sink applies it in one transaction, so the output must fit that.

    Args:
        outputs: a DataFrame that is not streaming, or several by name; each sink then selects one
            with `of=`.
        sinks: the destinations of the rows, applied in this order.
        name: the job's name; the checkpoint belongs to it.
        checkpoint: a path or `s3://bucket/prefix`, used by this batch alone: another input needs
            another one. If the environment sets the checkpoint or settings, those win.
        dead_letters: a sink for rows that a sink refuses.
        settings: see `EpochSettings`; those for pace and state have no effect. Default: no timeout.
        inputs: text that describes the input and changes when the input does; default: path, size
            and modification time of each file.

    Raises:
        SettingsInvalid: a value is invalid, or an output is streaming.
    """
    by_name = outputs if isinstance(outputs, Mapping) else {SINGLE_OUTPUT: outputs}
    for output, frame in by_name.items():
        if frame_of(frame).isStreaming:
            raise SettingsInvalid(
                f"output {output} of batch {name} is streaming",
                data="nothing was started",
                do="use epochs(); the interval available-now stops it after all input is read",
            )
    settings = settings or EpochSettings(timeout_s=0)
    checkpoint, settings = DriverEnvironment.read().override(checkpoint, settings)
    settings = dataclasses.replace(settings, interval=AVAILABLE_NOW, overlap=False)
    return BatchWriter(
        by_name, tuple(sinks), name, checkpoint, dead_letters, settings, inputs=inputs
    )


class BatchRun(Run):
    """A running batch, returned by `BatchWriter.start`."""

    def __init__(
        self,
        spark: SparkSession,
        context: QueryContext,
        settings: EpochSettings,
        inputs: str | None,
    ) -> None:
        self._spark, self._context, self._settings = spark, context, settings
        self._inputs = inputs
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sluicegate-batch", daemon=True)
        shutdown.register(self)
        self._thread.start()

    @property
    def lineage(self) -> str:
        """The id of the checkpoint's history."""
        return self._context.job.lineage

    @property
    def is_active(self) -> bool:
        """Whether the batch is running."""
        return self._thread.is_alive()

    @property
    def has_settled(self) -> bool:
        """Never before its end: a batch is one epoch."""
        return False

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Wait until the batch ends; return whether it has; raise the error if it failed."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Wait for the end: a batch is one epoch and is not interrupted."""
        self.await_end()

    def cancel(self) -> None:
        """Wait for the end, then delete the checkpoint if `on_cancel` is 'delete'."""
        self.stop()
        if self._settings.on_cancel == "delete":
            delete_checkpoint(self._context.store)
            log.info("the checkpoint %s is deleted", self._context.checkpoint)

    def _run(self) -> None:
        try:
            self._run_once()
        except BaseException as error:  # noqa: BLE001 - `await_end` raises it
            self._error = error
        finally:
            close_writers(self._context.job.lineage)
            self._context.close()
            shutdown.unregister(self)

    def _run_once(self) -> None:
        """Run the batch or apply its decision, unless every sink has it already."""
        context, rows = self._context, self._context.outputs.stream()
        described = _describe_input(rows, self._inputs)
        stored = context.store.read(_OFFSETS)
        decided = context.store.read(f"epochs/{_EPOCH}") is not None
        if stored is None:
            context.store.create(_OFFSETS, described)
            stored = context.store.read(_OFFSETS)
        changed = stored != described
        if changed and not decided:
            state, do = "undecided; nothing of it is in any sink", "a fresh checkpoint"
            raise _input_changed(context, state, do)
        if context.store.read(_COMMIT) is None:
            # a decided batch is applied from its record, whatever the input is now
            make_plan = partial(_WholePlan, described, self._inputs, context)
            runner = EpochRunner(self._spark, context, self._settings.timeout_s, make_plan)
            with deadline(_EPOCH, self._settings.timeout_s):
                run = partial(runner.run, rows, _EPOCH)
                Pace(self._settings).run(_EPOCH, run, lambda: True)
            runner.background.close()
            context.store.create(_COMMIT, _COMMIT_CONTENT)
        else:
            log.info("batch %s is in every sink already: nothing to do", context.job.name)
        if changed:
            state = "in every sink, from the input as it was"
            raise _input_changed(context, state, "another checkpoint for the new input")


def _describe_input(rows: DataFrame, inputs: str | None) -> bytes:
    """Return the input of a batch as bytes, which stay the same as long as the input does."""
    if inputs is not None:
        return json.dumps({"inputs": inputs}).encode()
    files = [_stat(rows, path) for path in sorted(set(rows.inputFiles()))]
    if not files:
        raise SettingsInvalid(
            "the batch reads no files, so its input cannot be described",
            data="nothing was started",
            do="describe it in batch(inputs=...), as text that changes when the input does",
        )
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    size = sum(length for _, length, _ in files)
    return json.dumps({"files": len(files), "bytes": size, "sha256": digest}).encode()


def _stat(rows: DataFrame, path: str) -> tuple[str, int, int]:
    """Return path, size and modification time (ms) from Hadoop, which knows all file systems."""
    context: Any = rows.sparkSession.sparkContext
    jvm = context._jvm  # noqa: SLF001 - there is no public API
    hadoop_path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
    file_system = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    status = file_system.getFileStatus(hadoop_path)
    return path, int(status.getLen()), int(status.getModificationTime())


class _WholePlan(BatchPlan):
    """`ports.Plan` of a batch: no watermark and no state, but an input that may change."""

    def __init__(
        self,
        described: bytes,
        inputs: str | None,
        context: QueryContext,
        batch: DataFrame,
        timings: EpochTimings,
    ) -> None:
        super().__init__(None, context, batch, timings)
        self._described, self._inputs = described, inputs

    def check_state(self, epoch: int) -> None:
        """Check that the input did not change while the batch read it."""
        try:
            unchanged = _describe_input(self._batch, self._inputs) == self._described
        except PySparkException as error:
            raise StageFailed(
                f"the input of batch epoch {epoch} cannot be checked again: {error}",
                data="nothing is decided and nothing is visible",
                do="run the batch again",
            ) from error
        if not unchanged:
            raise InputChanged(
                "the input changed while the batch read it",
                data="nothing is decided and nothing is visible",
                do="make sure that nobody writes the input, then run it with a fresh checkpoint",
            )


def _input_changed(context: QueryContext, state: str, do: str) -> SluicegateError:
    return InputChanged(
        f"the input of batch {context.job.name} is not what it was when checkpoint "
        f"{context.checkpoint} was started",
        data=f"the batch of this checkpoint is {state}; the new input was not read",
        do=f"start with {do}",
    )
