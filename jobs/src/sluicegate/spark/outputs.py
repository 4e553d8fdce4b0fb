"""The outputs of a job: one or several DataFrames, staged for all sinks in one pass.

A row of the query has a struct column per sink, null for the sinks of other outputs; several outputs
form one tagged union (rule 7). The sinks' own expressions are part of the streaming plan, so that
Spark evaluates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.contract import BoundSink
from sluicegate.sinks.reserved_columns import PART, REFUSED, SOURCE
from sluicegate.spark.dropped_rows import DroppedRows, can_be_split, marked
from sluicegate.spark.late_rows import (
    LateRows,
    drops_timely_rows,
    set_late_watermark,
    without_timely_rows,
)

_TEXT_COLUMNS = ("reason", "payload", "payload_sha256", "payload_of", "source")
DEAD_LETTER_SCHEMA = pa.schema(
    [("value", pa.binary()), *((name, pa.string()) for name in _TEXT_COLUMNS)]
)
"""The schema that a dead-letter sink without an output is bound to: JSON for a topic, columns for a
table."""

_LATE_AT = "__late"

Output = DataFrame | LateRows | DroppedRows


def refuse(rows: DataFrame, reason: Column) -> DataFrame:
    """Return the rows; those with a reason become dead letters instead of reaching a sink.

    Args:
        rows: an output, or a step before it: keep the column `__refused` in a select.
        reason: the reason as text; null for a good row. JSON with a `payload` is the whole dead letter,
            otherwise the dead letter contains the row as the sinks would have received it. A row that
            is refused already keeps its first reason.
    """
    reason = reason.cast("string")
    return rows.withColumn(
        REFUSED, F.coalesce(REFUSED, reason) if REFUSED in rows.columns else reason
    )


def frame_of(output: Output) -> DataFrame:
    """Return the DataFrame of an output."""
    rows = _rows_of(output)
    return rows.rows if isinstance(rows, LateRows) else rows


def _rows_of(output: Output) -> DataFrame | LateRows:
    return output.of if isinstance(output, DroppedRows) else output


def arrow_schema(output: Output) -> pa.Schema:
    """Return the schema of an output's rows as the sinks receive them."""
    schema = to_arrow_schema(frame_of(output).schema)
    return pa.schema([field for field in schema if field.name not in (REFUSED, SOURCE)])


def nondeterministic(outputs: Mapping[str, Output]) -> list[str]:
    """Return the outputs whose plan may give other rows when it is evaluated again, as far as Spark knows.

    Of a single output it does not matter, and the JVM is not called.
    """
    if len(outputs) < 2:  # noqa: PLR2004 - two could differ
        return []
    plans = {name: frame_of(output)._jdf.queryExecution() for name, output in outputs.items()}  # noqa: SLF001
    return [name for name, plan in plans.items() if not plan.analyzed().deterministic()]


class Outputs:
    """The outputs of a job and their sinks.

    Args:
        outputs: by name.
        sinks_by_output: output name -> its bound sinks.
        dead_letters: a dead-letter sink that takes no output and receives only refused rows.

    Raises:
        SettingsInvalid: an output has no sink: its rows would be lost silently.
    """

    def __init__(
        self,
        outputs: Mapping[str, Output],
        sinks_by_output: Mapping[str, Sequence[BoundSink]],
        dead_letters: BoundSink | None = None,
    ) -> None:
        self._outputs, self._sinks_by_output = outputs, sinks_by_output
        self._dead_letters = dead_letters
        unused = sorted(name for name in outputs if not sinks_by_output.get(name))
        if unused or not outputs:
            raise SettingsInvalid(
                f"no sink takes output {', '.join(unused)}" if unused else "the job has no output",
                data="nothing was started",
                do="give a sink `of=` the output's name, or remove the output",
            )

    def sinks(self) -> list[BoundSink]:
        """Return all sinks, in the order of the struct columns."""
        sinks = [sink for name in self._outputs for sink in self._sinks_by_output[name]]
        return [*sinks, self._dead_letters] if self._dead_letters else sinks

    def stream(self) -> DataFrame:
        """Return the one DataFrame that the query runs."""
        structs: list[tuple[str | None, Column, DataType]] = [
            (name, _struct(sink), _type(frame_of(output), sink))
            for name, output in self._outputs.items()
            for sink in self._sinks_by_output[name]
        ]
        frames = [frame_of(output) for output in self._outputs.values()]
        if self._dead_letters:
            fields = from_arrow_schema(DEAD_LETTER_SCHEMA)
            nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]
            letters = frames[0].sparkSession.range(0).select(*nulls)
            kind = _type(letters, self._dead_letters)
            structs.append((None, _struct(self._dead_letters), kind))
        any_refused = any(REFUSED in frame.columns for frame in frames)
        any_source = any(SOURCE in frame.columns for frame in frames)
        tagged = []
        for (name, output), frame in zip(self._outputs.items(), frames, strict=True):
            columns = [
                (struct if owner == name else F.lit(None).cast(kind)).alias(f"s{i}")
                for i, (owner, struct, kind) in enumerate(structs)
            ]
            if any_refused:
                columns.append(_reason(frame).alias(REFUSED))
            if any_source:
                columns.append(_source(frame).alias(SOURCE))
            rows = _rows_of(output)
            if isinstance(rows, LateRows):
                frame = without_timely_rows(rows)  # noqa: PLW2901
                columns.append(rows.late_at().alias(_LATE_AT))
            elif self._has_late_rows:
                columns.append(F.lit(None).cast("timestamp").alias(_LATE_AT))
            if isinstance(output, DroppedRows):
                frame = marked(frame)  # noqa: PLW2901
            tagged.append(frame.select(*columns))
        return reduce(DataFrame.union, tagged)

    @property
    def _spark(self) -> SparkSession:
        return frame_of(next(iter(self._outputs.values()))).sparkSession

    @cached_property
    def _has_late_rows(self) -> bool:
        return any(isinstance(_rows_of(output), LateRows) for output in self._outputs.values())

    @cached_property
    def _plan_drops_timely_rows(self) -> bool:
        """Whether the frame of `stream` has only late rows of a LateRows; requested from the JVM once."""
        return drops_timely_rows(self._spark)

    @cached_property
    def may_be_split(self) -> bool:
        """Whether an output has only dropped rows, and the session can run the plan without it."""
        has_any = any(isinstance(output, DroppedRows) for output in self._outputs.values())
        return has_any and can_be_split(self._spark)

    def rows_to_stage(self, batch: DataFrame, late_watermark_ms: int | None) -> DataFrame:
        """Return an epoch's rows: a struct per sink, `REFUSED` and `SOURCE` if an output has them."""
        if not self._has_late_rows:
            return batch
        set_late_watermark(batch.sparkSession, late_watermark_ms)
        if not self._plan_drops_timely_rows:
            batch = batch.where(_late(late_watermark_ms))
        return batch.drop(_LATE_AT)


def _late(watermark_ms: int | None) -> Column:
    """Return whether a row is late by a watermark, or is kept in every epoch."""
    late = F.col(_LATE_AT).isNull()
    if watermark_ms is not None:
        late |= F.col(_LATE_AT) <= F.timestamp_millis(F.lit(watermark_ms).cast("long"))
    return late


def _reason(rows: DataFrame) -> Column:
    column = F.col(REFUSED) if REFUSED in rows.columns else F.lit(None)
    return column.cast("string")


def _source(frame: DataFrame) -> Column:
    """Return the origin of a row as JSON, null if the output has none."""
    if SOURCE not in frame.columns:
        return F.lit(None).cast("string")
    nested = isinstance(frame.schema[SOURCE].dataType, StructType)
    return F.to_json(SOURCE) if nested else F.col(SOURCE).cast("string")


def _type(rows: DataFrame, sink: BoundSink) -> DataType:
    return rows.select(_struct(sink).alias("s")).schema["s"].dataType


def _struct(sink: BoundSink) -> Column:
    columns = [F.expr(expression).alias(name) for name, expression in sink.expressions]
    if sink.part_expression is not None:
        columns.append(F.expr(sink.part_expression).cast("int").alias(PART))
    return F.struct(*columns)
