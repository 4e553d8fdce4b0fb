"""`batch`: a plain DataFrame reaches all sinks exactly once, as epoch 0 of a lineage of its own.

The same coordinator, record and markers as of a stream, without Spark's streaming engine: what the
batch reads is described in `offsets/0`, created once, so that a rerun is known to be of the same
input; `commits/0` says that every sink has it. A rerun after that changes nothing, a rerun after a
crash finishes what was decided, or runs the plan again where nothing was. Not here: one epoch
(`driver`). Called by jobs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sluicegate.protocol.errors import InputChanged, SettingsInvalid, SluicegateError, StageFailed
from sluicegate.protocol.ports import Plan
from sluicegate.protocol.record import EventTime
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.settings.told import Told
from sluicegate.sinks.contract import Sink
from sluicegate.spark import ending
from sluicegate.spark.applying import close_writers
from sluicegate.spark.deadline import deadline
from sluicegate.spark.driver import BatchPlan, EpochDriver, Times, Wiring
from sluicegate.spark.finishing import finish_decided
from sluicegate.spark.outputs import Output, frame_of
from sluicegate.spark.query import EpochsWriter

log = logging.getLogger("sluicegate.query")

_EPOCH = 0
_INPUT, _DONE = f"offsets/{_EPOCH}", f"commits/{_EPOCH}"
_DONE_TEXT = b"v1\n{}"


@dataclass(frozen=True)
class BatchWriter(EpochsWriter):
    """A batch that is described and not started.

    Args:
        inputs: what it reads; see `batch`.
    """

    inputs: str | None = None

    def start(self) -> BatchRun:  # type: ignore[override] # a run has what callers use of a query
        """Check everything, then start the batch in a thread.

        Raises:
            PreflightFailed: or one of its kinds; nothing was started.
            SinkUnavailable: a server does not answer; nothing was started.
            SystemExit: as of `EpochsWriter.start`.
        """
        if self.settings.overlap:
            raise SettingsInvalid(
                "overlap is on, and a batch is one epoch",
                data="nothing was started",
                do="switch it off",
            )
        spark, wiring = self.wired()
        if Told.read().finishes:
            if finish_decided(spark, wiring, self.settings.timeout_s) is not None:
                wiring.objects.create(_DONE, _DONE_TEXT)
            raise ending.Ended
        return BatchRun(spark, wiring, self.settings, self.inputs)


def batch(  # noqa: PLR0913 - all by keyword, one for each thing a job must say
    outputs: DataFrame | Mapping[str, DataFrame],
    *,
    sinks: Sequence[Sink],
    name: str,
    checkpoint: str,
    dead_letters: Sink | None = None,
    settings: EpochSettings | None = None,
    inputs: str | None = None,
) -> BatchWriter:
    """Describe a batch that reaches all sinks together, exactly once, however often it is run.

    It is one epoch: each sink takes it in one transaction a part, so its output must fit one.

    Args:
        outputs: a DataFrame that is not streaming, or several by name; each sink then says `of=`.
        sinks: where the rows go; applied in this order.
        name: the job's name; the checkpoint belongs to it.
        checkpoint: a path or `s3://bucket/prefix`, of this batch alone: another input needs another.
            It and the settings are those of the environment where that gives any.
        dead_letters: a sink for rows that a sink refuses.
        settings: see `EpochSettings`; those of pace and state mean nothing here. Default: no timeout.
        inputs: text that says what is read, and changes when that does; default: path, size and
            modification time of each file.

    Raises:
        SettingsInvalid: a value cannot work, or an output is streaming.
    """
    named: Mapping[str, Output] = outputs if isinstance(outputs, Mapping) else {"rows": outputs}
    for output, frame in named.items():
        if frame_of(frame).isStreaming:
            raise SettingsInvalid(
                f"output {output} of batch {name} is streaming",
                data="nothing was started",
                do="use epochs(), with the interval available-now to end when all is read",
            )
    checkpoint, told = Told.read().over(checkpoint, settings or EpochSettings(timeout_s=0))
    given = dataclasses.replace(told, interval=AVAILABLE_NOW)
    return BatchWriter(named, tuple(sinks), name, checkpoint, dead_letters, given, inputs=inputs)


class BatchRun:
    """A running batch. Made by `BatchWriter.start`; has what callers use of an `EpochsQuery`."""

    def __init__(
        self, spark: SparkSession, wiring: Wiring, settings: EpochSettings, inputs: str | None
    ) -> None:
        self._spark, self._wiring, self._settings = spark, wiring, settings
        self._inputs = inputs
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sluicegate-batch", daemon=True)
        ending.enter(self)
        self._thread.start()

    @property
    def lineage(self) -> str:
        """The id of the checkpoint's history."""
        return self._wiring.job.lineage

    @property
    def is_active(self) -> bool:
        """Whether the batch is running."""
        return self._thread.is_alive()

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Wait until the batch ends; True if it has.

        Raises:
            SluicegateError: what ended it.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Wait for the end: a batch is one epoch, and an epoch is not left half done."""
        self.await_end()

    def cancel(self) -> None:
        """Wait for the end, then remove the checkpoint if `on_cancel` is 'delete'."""
        self.stop()
        if self._settings.on_cancel == "delete":
            self._wiring.objects.clear()
            log.info("the checkpoint %s is deleted", self._wiring.checkpoint)

    def _run(self) -> None:
        try:
            self._once()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the end
            self._error = error
        finally:
            close_writers()
            self._wiring.progress.close()
            self._wiring.tracing.close()
            ending.leave(self)

    def _once(self) -> None:
        """Run the batch, finish it, or see that it is done."""
        wiring, rows = self._wiring, self._wiring.outputs.stream()
        described = _Described(rows, self._inputs)
        driver = _BatchDriver(self._spark, wiring, described, self._settings.timeout_s)
        stored = wiring.objects.read(_INPUT)
        decided = wiring.objects.read(f"epochs/{_EPOCH}") is not None
        if stored is None:
            wiring.objects.create(_INPUT, described.text)
            stored = wiring.objects.read(_INPUT)
        changed = stored != described.text
        if changed and not decided:
            raise _input_changed(
                wiring, "undecided; nothing of it is in any sink", "a fresh checkpoint"
            )
        if wiring.objects.read(_DONE) is None:
            # decided is decided: it is finished from the record, whatever the input is now
            driver.run(rows, _EPOCH)
            driver.finish()
            wiring.objects.create(_DONE, _DONE_TEXT)
        else:
            log.info("batch %s is in every sink already: nothing is done", wiring.job.name)
        driver.close()
        if changed:
            raise _input_changed(
                wiring,
                "in every sink, from the input as it was",
                "another checkpoint for the new input",
            )


class _Described:
    """What a batch reads, as bytes that are the same as long as the input is."""

    def __init__(self, rows: DataFrame, inputs: str | None) -> None:
        self._rows, self._inputs = rows, inputs
        self.text = self._describe()

    def unchanged(self) -> bool:
        """Look again."""
        return self._describe() == self.text

    def _describe(self) -> bytes:
        if self._inputs is not None:
            return json.dumps({"inputs": self._inputs}).encode()
        files = [self._stat(path) for path in sorted(set(self._rows.inputFiles()))]
        if not files:
            raise SettingsInvalid(
                "the batch reads no files, so what it reads cannot be told",
                data="nothing was started",
                do="say it in batch(inputs=...), as text that changes when the input does",
            )
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        return json.dumps(
            {"files": len(files), "bytes": sum(f[1] for f in files), "sha256": digest}
        ).encode()

    def _stat(self, path: str) -> tuple[str, int, int]:
        """Return path, size and modification time (ms) by Hadoop, which knows every file system."""
        context: Any = self._rows.sparkSession.sparkContext
        jvm = context._jvm  # noqa: SLF001 - no public door
        where = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
        status = where.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(where)  # noqa: SLF001
        return path, int(status.getLen()), int(status.getModificationTime())


class _BatchDriver(EpochDriver):
    """The driver of the one epoch: its plan is the DataFrame itself."""

    def __init__(
        self, spark: SparkSession, wiring: Wiring, described: _Described, timeout_s: float
    ) -> None:
        super().__init__(spark, wiring, lambda epoch: deadline(epoch, timeout_s))
        self._described, self._timeout_s = described, timeout_s

    def run(self, batch: DataFrame, epoch: int) -> None:
        with deadline(epoch, self._timeout_s):
            super().run(batch, epoch)

    def _plan(self, batch: DataFrame, times: Times) -> Plan:
        return _WholePlan(self._described, self._wiring, batch, times)


class _WholePlan(BatchPlan):
    """`ports.Plan` of a DataFrame without a stream: no watermark, no state."""

    def __init__(
        self, described: _Described, wiring: Wiring, batch: DataFrame, times: Times
    ) -> None:
        super().__init__(None, wiring, batch, times)
        self._described = described

    def check_state(self, epoch: int) -> None:
        """See that the input is still what was described: it may have changed while it was read."""
        try:
            same = self._described.unchanged()
        except PySparkException as error:
            raise StageFailed(
                f"the input of batch epoch {epoch} cannot be looked at again: {error}",
                data="nothing is decided and nothing is visible",
                do="run it again",
            ) from error
        if not same:
            raise InputChanged(
                "the input changed while the batch read it",
                data="nothing is decided and nothing is visible",
                do="let nobody write there meanwhile; run it again with a fresh checkpoint",
            )

    def feed(self, event_times: tuple[EventTime, ...]) -> None:
        """Nothing follows a batch."""


def _input_changed(wiring: Wiring, state: str, do: str) -> SluicegateError:
    return InputChanged(
        f"the input of batch {wiring.job.name} is not what it was when checkpoint "
        f"{wiring.checkpoint} was started",
        data=f"the batch of this checkpoint is {state}; the new input was not read",
        do=f"start with {do}",
    )
