"""The log of received lines as a streaming DataFrame; the offsets of this Spark source are positions in it.

Spark's own file source on the same folder was rejected: it packs files by size, so lines would lose
their order; the offsets of an epoch are numbers of its own log, so rule 3 would not detect which files
belong to the epoch; and it remembers every file forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sluicegate.spark.socket.write_ahead_log import OFFSET_KEY, WriteAheadLog, peer_of
from sluicegate.storage.object_store import open_checkpoint

_FORMAT = "sluicegate-receipts"
_CHECKPOINT = "checkpoint"

SCHEMA_DDL = (
    "line binary, broken string, length long, sha256 string, received_at timestamp, "
    "peer string, segment long, number int"
)
"""`line` and `broken` (why it is not a valid line, else null); `length` and `sha256` of the whole line if it
was truncated; its origin and position."""


def received_lines(spark: SparkSession, checkpoint: str) -> DataFrame:
    """Return the received lines of a checkpoint as a stream with the columns of `SCHEMA_DDL`.

    An epoch reads what is logged when it starts, in one task, so that the order is preserved. A job
    has one such source: its log is in the job's checkpoint.
    """
    spark.dataSource.register(ReceivedLinesSource)
    return spark.readStream.format(_FORMAT).option(_CHECKPOINT, checkpoint).load()


class ReceivedLinesSource(DataSource):
    """The source of `received_lines`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _FORMAT

    def schema(self) -> StructType | str:
        """The columns."""
        return SCHEMA_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Return the reader."""
        return _Reader(self.options[_CHECKPOINT])


class _Reader(DataSourceStreamReader):
    """Answers Spark's calls, which it makes in a separate process, and reads in tasks."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._known: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position before the first segment."""
        return {OFFSET_KEY: 0}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The newest durable segment; never less than before, also across drivers."""
        segments = self._log()
        known = segments.end() if self._known is None else max(self._known, segments.newest())
        self._known = known
        return {OFFSET_KEY: known}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task for all segments of an epoch, so that the lines keep their order."""
        return [InputPartition(range(start[OFFSET_KEY] + 1, end[OFFSET_KEY] + 1))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the segments in order."""
        segments = self._log()
        for number in partition.value:
            lines = segments.read(number)
            added = {
                "peer": pa.array([peer_of(lines)] * lines.num_rows, pa.string()),
                "segment": pa.array([number] * lines.num_rows, pa.int64()),
                "number": pa.array(range(lines.num_rows), pa.int32()),
            }
            columns = dict(zip(lines.schema.names, lines.columns, strict=True)) | added
            yield pa.RecordBatch.from_pydict(columns)

    def _log(self) -> WriteAheadLog:
        return WriteAheadLog(open_checkpoint(self._checkpoint))
