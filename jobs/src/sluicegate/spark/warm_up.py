"""Warms up a session that waits: it loads and compiles what the first epoch of a job needs."""

from __future__ import annotations

import importlib
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.errors import SluicegateError, StageFailed
from sluicegate.sinks.contract import BoundSink, Sink
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.checkpoint_files import checkpoint_files
from sluicegate.spark.errors import cause_of
from sluicegate.spark.foreach_batch import foreach_batch
from sluicegate.spark.outputs import DEAD_LETTER_SCHEMA, Output, Outputs, arrow_schema
from sluicegate.spark.query_execution import (
    JavaObject,
    RunningExecution,
    RunningQuery,
    kafka_options,
    leaves,
)
from sluicegate.spark.session import CHANGELOG_CHECKPOINTING, temporary_settings
from sluicegate.spark.staging import NO_EPOCH, StageOrder, Stager, stage_with

log = logging.getLogger("sluicegate.run")

_OUTPUT: Final = "warm-up"

LIMIT_S: Final = 120
"""Longest an epoch of a warm-up may take: until its end the standby does not take over."""

_RECENT_MS: Final = 1000
"""The age of the oldest Kafka records that are read; a busy topic has some, and never many."""

_STAGED_ROWS: Final = 1000
"""How many rows of a task are staged, so that their chunks are small."""

_OF_POSITIONS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
"""Options of a Kafka source, one of which says where it starts."""


_MIN_DELTAS: Final = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
"""The number of changelogs after which the next commit writes a snapshot."""

_warm_applications: Final[set[str]] = set()
"""The ids of the Spark applications that have their workers."""


class Described(Protocol):
    """A job that was built: what a standby loads the code for (`sluicegate.spark.epochs.EpochsWriter`)."""

    @property
    def outputs(self) -> Mapping[str, Output]:
        """Its streaming frames."""

    @property
    def sinks(self) -> Sequence[Sink]:
        """Its sinks."""

    @property
    def dead_letters(self) -> Sink | None:
        """Its sink of dead letters."""

    @property
    def output_mode(self) -> str:
        """Its output mode, as Spark's."""


Built = TypeVar("Built", bound=Described)


def start_workers(spark: SparkSession, sinks: Iterable[Sink]) -> None:
    """Start the Python workers of a session in the background, by a small Spark job, once.

    Spark starts them for the first task that needs one. The first epoch would wait for that, while a
    core is idle before, as the query starts. If the small job fails, the first epoch starts them.
    """
    application = spark.sparkContext.applicationId
    if application in _warm_applications:
        return
    _warm_applications.add(application)
    modules = _modules(sinks)

    def load(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for module in modules:
            importlib.import_module(module)
        yield from batches

    def run() -> None:
        tasks = spark.sparkContext.defaultParallelism
        try:
            rows = spark.range(0, tasks, 1, tasks)
            rows.mapInArrow(load, rows.schema).toArrow()
        except (PySparkException, Py4JError, OSError) as error:
            why = cause_of(str(error))
            log.info("the first epoch has to start the Python workers: %s", why)

    threading.Thread(target=run, name="start-workers", daemon=True).start()


def _modules(sinks: Iterable[Sink]) -> list[str]:
    """Return the modules that a worker imports when it receives its first order."""
    return sorted({type(sink).__module__ for sink in sinks})


def prepare_standby(spark: SparkSession, build: Callable[[], Built]) -> Built | None:
    """Build a job and warm up the session for it; return the job, None if it cannot be built now.

    No failure ends the standby, whatever it is: its first epoch then loads what is missing, and an
    error in the job is raised again when the standby takes over.
    """
    writer = None
    try:
        writer = build()
        warm_up(spark, writer)
    except (SluicegateError, PySparkException) as error:
        log.warning("the standby is not warm, so a takeover takes longer: %s", error)
    except Exception:
        log.exception("the standby is not warm, so a takeover takes longer")
    return writer


def warm_up(spark: SparkSession, writer: Described) -> None:
    """Stage a small stateful epoch, then one of the job's own plan over the same records of Kafka.

    The first epoch of the job then need not load the same code, nor compile the code that Spark
    generates for the plan. Before them some epochs load the state that others have left. Nothing of it
    is written: the checkpoints are temporary, the staged rows are dropped, and neither a checkpoint nor
    a sink of the job is opened or read. The input is generated, and from each Kafka topic of the job it
    also has the records of the last second. The own plan runs only if it reads nothing but Kafka: there
    is no such bound for other sources.
    """
    own = _without_sinks(writer)
    inputs, numbers = _inputs(own.stream())
    sources = [options for relation in inputs if (options := kafka_options(relation)) is not None]
    values = _generated(spark)
    for source in sources:
        values = values.union(_recent(spark, source))
    generic = _counted(values)
    modules = _modules(writer.sinks)
    _warm_applications.add(spark.sparkContext.applicationId)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "generic"), Path(folder, "own")
        load_state(spark, Path(folder, "state"), modules)
        _run_epoch(spark, generic, "update", first, modules)
        if sources and len(sources) == len(inputs):
            _plan_same_records(first, second, numbers)
            _run_epoch(spark, own, writer.output_mode, second, modules)


def load_state(spark: SparkSession, folder: Path, modules: Sequence[str]) -> None:
    """Load the state of a query without Kafka: once a snapshot, and once a changelog too.

    A driver that takes over loads both. The state is in the files of the query before, because each
    query has its own stores. Without a changelog, a snapshot is written when an epoch commits.

    Args:
        spark: the session.
        folder: of the checkpoint; it need not exist.
        modules: what a worker imports.
    """
    for settings in ({CHANGELOG_CHECKPOINTING: "false"}, {}, {_MIN_DELTAS: "1"}):
        with temporary_settings(spark, settings):
            _run_epoch(spark, _counted(_generated(spark)), "update", folder, modules)


def _generated(spark: SparkSession) -> DataFrame:
    """Return a few generated numbers."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 8).load()
    return rows.select("value")


def _counted(values: DataFrame) -> Outputs:
    """Return the outputs of a stateful query."""
    counts = values.groupBy("value").count()
    return Outputs({_OUTPUT: counts}, {_OUTPUT: [_discarding(0, arrow_schema(counts))]})


def _run_epoch(
    spark: SparkSession, outputs: Outputs, mode: str, folder: Path, modules: Sequence[str]
) -> None:
    """Run one epoch with a temporary checkpoint and drop what it stages."""
    stage = stage_with(StageOrder(str(folder), 1 << 20, tuple(outputs.sinks()), None))

    def load_and_stage(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for module in modules:
            importlib.import_module(module)
        rest = iter(batches)
        yield from stage(batch.slice(0, _STAGED_ROWS) for batch in islice(rest, 1))
        for _ in rest:  # a state store commits after its last row
            pass

    def run(batch: DataFrame, _epoch: int) -> None:
        query = RunningQuery(spark)
        query.prime_sources()
        execution = RunningExecution(query)
        execution.durations_ms()
        execution.end_offsets()
        rows = outputs.rows_to_stage(batch, execution.late_watermark_ms())
        stager = Stager(load_and_stage)
        stager.stage(rows, NO_EPOCH, _OUTPUT, tasks=1)  # their number need not be exact here
        execution.kafka_sources()
        execution.rows_in()
        execution.state_rows()
        execution.state_ms()
        execution.event_times()
        execution.state_operators()

    stream = outputs.stream().writeStream.outputMode(mode).trigger(once=True)
    with checkpoint_files(spark, str(folder)):
        query = foreach_batch(stream.option("checkpointLocation", str(folder)), run).start()
    if not query.awaitTermination(LIMIT_S):
        query.stop()
        raise StageFailed(
            f"an epoch of the warm-up did not end within {LIMIT_S:g} s",
            data="nothing of it was written",
            do="find what waits in the job's plan, for example a request to another server",
        )


def _inputs(stream: DataFrame) -> tuple[list[JavaObject], list[int]]:
    """Return the inputs of a query as Spark numbers them, and the number of each leaf of its plan."""
    found: list[JavaObject] = []
    numbers = []
    for node in leaves(stream):
        known = (number for number, other in enumerate(found) if node.equals(other))
        number = next(known, len(found))
        if number == len(found):
            found.append(node)
        numbers.append(number)
    return found, numbers


def _plan_same_records(planned: Path, other: Path, numbers: Sequence[int]) -> None:
    """Write the offset log of a checkpoint so that its first epoch has the records of another's.

    Spark plans no epoch anew that is in its offset log. Without that, the first epoch of the job's plan
    would read its topics from their beginning.

    Args:
        planned: the checkpoint of an epoch of a generated source and the Kafka sources.
        other: the checkpoint of an epoch of the same Kafka sources alone.
        numbers: the Kafka source of each leaf of the other plan; the log has the end of each leaf.
    """
    version, metadata, _generated, *ends = (planned / "offsets" / "0").read_text().splitlines()
    (other / "offsets").mkdir(parents=True)
    (other / "offsets" / "0").write_text(
        "\n".join([version, metadata, *(ends[i] for i in numbers)])
    )
    for number in sorted(set(numbers)):
        starts = other / "sources" / str(number)
        starts.mkdir(parents=True)
        shutil.copyfile(planned / "sources" / str(number + 1) / "0", starts / "0")


def _without_sinks(writer: Described) -> Outputs:
    """Return the outputs of a job with a sink in memory in the place of each of its own."""
    bound: dict[str, list[BoundSink]] = {name: [] for name in writer.outputs}
    letters = writer.dead_letters
    for number, sink in enumerate([*writer.sinks, *([letters] if letters and letters.of else [])]):
        name = sink.of or next(iter(writer.outputs))
        if name in bound:  # otherwise the start of the query raises an error with advice
            bound[name].append(_discarding(number, arrow_schema(writer.outputs[name])))
    of_letters = _discarding(-1, DEAD_LETTER_SCHEMA) if letters and not letters.of else None
    return Outputs(writer.outputs, bound, of_letters)


def _discarding(number: int, schema: pa.Schema) -> BoundSink:
    """Return a sink that is never opened."""
    sink = MemorySink(f"{_OUTPUT}-{number}")
    return sink.bind(schema, lineage=_OUTPUT, apply_timeout_s=1.0)


def _recent(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return a number from each record that a Kafka source received in the last second."""
    since_ms = int(time.time() * 1000) - _RECENT_MS
    positions = {name.lower() for name in _OF_POSITIONS}
    others = {name: value for name, value in options.items() if name.lower() not in positions}
    return (
        spark.readStream.format("kafka")
        .options(**others)
        .option("startingTimestamp", since_ms)
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
        .select(F.col("offset").alias("value"))
    )
