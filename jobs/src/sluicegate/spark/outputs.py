"""What an epoch consists of: one or several DataFrames, staged for all sinks in one pass.

A row of the query is a struct per sink, null for the sinks of other outputs; several outputs are
one tagged union (rule 7). The sinks' own expressions are part of the streaming plan, so that
Spark evaluates them. Not here: running it (`staging`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, NullType, StructType

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.sinks.contract import BoundSink

PART = "__part"
"""The column of a sink's struct that says which part a row belongs to, where there are several."""

REFUSED = "__refused"
"""A column by which an output refuses rows of its own: the reason, null for a good row.

A refused row is in no sink and becomes a dead letter, as one that a sink refuses (rule 10). Both are
told by one evaluation of the row (rule 7); two outputs that each ask whether a row is good could
both have it, or neither.
"""

SOURCE = "__source"
"""A column of an output that no sink gets: where a row came from, for the letter of a refused row.

A struct, such as topic, partition, offset and timestamp of the record, or a text of JSON.
"""

LETTERS = pa.schema(
    [
        ("value", pa.binary()),
        *(
            (name, pa.string())
            for name in ("reason", "payload", "payload_sha256", "payload_of", "source")
        ),
    ]
)
"""What a dead-letter sink that takes no output is bound to: JSON for a topic, columns for a table."""

_LATE = "__late"


@dataclass(frozen=True)
class LateRows:
    """An output of the rows that a windowed aggregation drops as late, exactly those.

    Spark counts late rows only after partial aggregation; here each is found by the very
    watermark that the epoch's aggregation uses, and can be sent to the dead letters.

    Args:
        rows: the streaming DataFrame, without a watermark of its own.
        window_end: the column with the end of the row's window; late where it is not after the
            watermark.
        also: a condition of further rows to keep in every epoch, such as broken ones.
    """

    rows: DataFrame
    window_end: str
    also: Column | None = None


Output = DataFrame | LateRows


def refuse(rows: DataFrame, reason: Column) -> DataFrame:
    """Return the rows, those with a reason marked to become dead letters instead of reaching a sink.

    Args:
        rows: an output, or what will be one: keep the column `__refused` in a select.
        reason: why, as text; null for a good row. JSON with a `payload` is taken for the whole
            letter, else the letter is made of what the sinks would have got. A row that is refused
            already keeps its first reason.
    """
    reason = reason.cast("string")
    return rows.withColumn(
        REFUSED, F.coalesce(REFUSED, reason) if REFUSED in rows.columns else reason
    )


def frame_of(output: Output) -> DataFrame:
    """Return the streaming DataFrame behind an output."""
    return output.rows if isinstance(output, LateRows) else output


def arrow_schema(output: Output) -> pa.Schema:
    """Return the schema of an output's rows, as the sinks see it."""
    schema = to_arrow_schema(frame_of(output).schema)
    return pa.schema([field for field in schema if field.name not in (REFUSED, SOURCE)])


class Outputs:
    """The outputs of a job with the sinks that take them.

    Args:
        outputs: by name.
        takers: output name -> its sinks, bound.
        letters: a sink of dead letters that takes no output: only rows that are refused.

    Raises:
        SettingsInvalid: an output without a sink: its rows would be silently gone.
    """

    def __init__(
        self,
        outputs: Mapping[str, Output],
        takers: Mapping[str, Sequence[BoundSink]],
        letters: BoundSink | None = None,
    ) -> None:
        self._outputs, self._takers, self._letters = outputs, takers, letters
        idle = sorted(name for name in outputs if not takers.get(name))
        if idle or not outputs:
            raise SettingsInvalid(
                f"no sink takes output {', '.join(idle)}" if idle else "the job has no output",
                data="nothing was started",
                do="give a sink `of=` the output's name, or leave the output out",
            )

    def sinks(self) -> list[BoundSink]:
        """Return all sinks, in the order of the struct columns."""
        taking = [sink for name in self._outputs for sink in self._takers[name]]
        return [*taking, self._letters] if self._letters else taking

    def stream(self) -> DataFrame:
        """Return the one streaming DataFrame that the query runs."""
        structs: list[tuple[str, Column]] = [
            (name, _struct(sink)) for name in self._outputs for sink in self._takers[name]
        ]
        types = {
            i: frame_of(self._outputs[name]).select(struct.alias("s")).schema["s"].dataType
            for i, (name, struct) in enumerate(structs)
        }
        letter = self._letter_type()
        columns_of = [frame_of(output).columns for output in self._outputs.values()]
        refusing = any(REFUSED in columns for columns in columns_of)
        sourced = any(SOURCE in columns for columns in columns_of)
        frames = []
        for name, output in self._outputs.items():
            columns = [
                (struct if taker == name else F.lit(None).cast(types[i])).alias(f"s{i}")
                for i, (taker, struct) in enumerate(structs)
            ]
            if self._letters:
                columns.append(F.lit(None).cast(letter).alias(f"s{len(structs)}"))
            if refusing:
                columns.append(_reason(frame_of(output)).alias(REFUSED))
            if sourced:
                columns.append(_source(frame_of(output)).alias(SOURCE))
            frames.append(frame_of(output).select(_late(output).alias(_LATE), *columns))
        return reduce(DataFrame.union, frames)

    def _letter_type(self) -> DataType:
        if self._letters is None:
            return NullType()
        spark = frame_of(next(iter(self._outputs.values()))).sparkSession
        types = {
            field.name: "binary" if field.type == pa.binary() else "string" for field in LETTERS
        }
        letters = spark.range(0).select(
            *(F.lit(None).cast(kind).alias(name) for name, kind in types.items())
        )
        return letters.select(_struct(self._letters).alias("s")).schema["s"].dataType

    def chosen(self, batch: DataFrame, late_watermark_ms: int | None) -> DataFrame:
        """Return the rows of an epoch that are staged.

        A struct column per sink; then `REFUSED` and `SOURCE`, where an output has them.
        """
        if any(isinstance(output, LateRows) for output in self._outputs.values()):
            late = F.col(_LATE).isNull()
            if late_watermark_ms is not None:
                late |= F.col(_LATE) <= F.timestamp_millis(F.lit(late_watermark_ms).cast("long"))
            batch = batch.where(late)
        return batch.drop(_LATE)


def _late(output: Output) -> Column:
    """Return the time by which a row is kept or not; null keeps it in every epoch."""
    if not isinstance(output, LateRows):
        return F.lit(None).cast("timestamp")
    end = F.col(output.window_end)
    return end if output.also is None else F.when(~F.coalesce(output.also, F.expr("false")), end)


def _reason(rows: DataFrame) -> Column:
    column = F.col(REFUSED) if REFUSED in rows.columns else F.lit(None)
    return column.cast("string")


def _source(frame: DataFrame) -> Column:
    """Return where a row came from as JSON; null where the output does not say."""
    if SOURCE not in frame.columns:
        return F.lit(None).cast("string")
    nested = isinstance(frame.schema[SOURCE].dataType, StructType)
    return F.to_json(SOURCE) if nested else F.col(SOURCE).cast("string")


def _struct(sink: BoundSink) -> Column:
    columns = [F.expr(expression).alias(name) for name, expression in sink.expressions]
    if sink.part_expression is not None:
        columns.append(F.expr(sink.part_expression).cast("int").alias(PART))
    return F.struct(*columns)
