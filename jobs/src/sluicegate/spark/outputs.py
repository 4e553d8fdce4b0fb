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
from pyspark.sql.types import StructType

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.sinks.contract import BoundSink

PART = "__part"
"""The column of a sink's struct that says which part a row belongs to, where there are several."""

SOURCE = "__source"
"""A column of an output that no sink gets: where a row came from, for the letter of a refused row.

A struct, such as topic, partition, offset and timestamp of the record, or a text of JSON."""

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


def frame_of(output: Output) -> DataFrame:
    """Return the streaming DataFrame behind an output."""
    return output.rows if isinstance(output, LateRows) else output


def arrow_schema(output: Output) -> pa.Schema:
    """Return the schema of an output's rows, as the sinks see it."""
    schema = to_arrow_schema(frame_of(output).schema)
    return pa.schema([field for field in schema if field.name != SOURCE])


class Outputs:
    """The outputs of a job with the sinks that take them.

    Args:
        outputs: by name.
        takers: output name -> its sinks, bound.

    Raises:
        SettingsInvalid: an output without a sink: its rows would be silently gone.
    """

    def __init__(
        self, outputs: Mapping[str, Output], takers: Mapping[str, Sequence[BoundSink]]
    ) -> None:
        self._outputs, self._takers = outputs, takers
        idle = sorted(name for name in outputs if not takers.get(name))
        if idle or not outputs:
            raise SettingsInvalid(
                f"no sink takes output {', '.join(idle)}" if idle else "the job has no output",
                data="nothing was started",
                do="give a sink `of=` the output's name, or leave the output out",
            )

    def sinks(self) -> list[BoundSink]:
        """Return all sinks, in the order of the struct columns."""
        return [sink for name in self._outputs for sink in self._takers[name]]

    def stream(self) -> DataFrame:
        """Return the one streaming DataFrame that the query runs."""
        structs: list[tuple[str, Column]] = [
            (name, _struct(sink)) for name in self._outputs for sink in self._takers[name]
        ]
        types = {
            i: frame_of(self._outputs[name]).select(struct.alias("s")).schema["s"].dataType
            for i, (name, struct) in enumerate(structs)
        }
        sourced = any(SOURCE in frame_of(output).columns for output in self._outputs.values())
        frames = []
        for name, output in self._outputs.items():
            columns = [
                (struct if taker == name else F.lit(None).cast(types[i])).alias(f"s{i}")
                for i, (taker, struct) in enumerate(structs)
            ]
            if sourced:
                columns.append(_source(frame_of(output)).alias(SOURCE))
            frames.append(frame_of(output).select(_late(output).alias(_LATE), *columns))
        return reduce(DataFrame.union, frames)

    def chosen(self, batch: DataFrame, late_watermark_ms: int | None) -> DataFrame:
        """Return the rows of an epoch that are staged: a struct column per sink, then `SOURCE` if any."""
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
