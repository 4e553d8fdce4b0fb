"""The receipt log as a streaming DataFrame: a Spark source whose offsets are positions in the log.

Spark's own file source over the same folder was looked at and turned down: it packs files by size,
so lines lose their order; its epoch offsets are numbers of a log of its own, so rule 3 would not
see which files an epoch has; and it remembers every file for ever. Not here: receiving
(`socket_receiver`). Called by jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sluicegate.storage.objects import open_objects
from sluicegate.storage.receipts import OFFSET_KEY, ReceiptLog

_FORMAT = "sluicegate-receipts"
_CHECKPOINT = "checkpoint"

SCHEMA_DDL = (
    "line binary, broken string, length long, sha256 string, received_at timestamp, "
    "segment long, number int"
)
"""A line, why it is none (null: it is), its length and hash where it was cut, and where it stands."""


def received_lines(spark: SparkSession, checkpoint: str) -> DataFrame:
    """Return the lines of a checkpoint's receipt log as a stream, see `SCHEMA_DDL`.

    An epoch takes what is logged when it begins, in one task, so that the order is kept.

    Args:
        spark: the session.
        checkpoint: the job's: the log is part of it. A job has one such source.
    """
    spark.dataSource.register(ReceiptSource)
    return spark.readStream.format(_FORMAT).option(_CHECKPOINT, checkpoint).load()


class ReceiptSource(DataSource):
    """See `received_lines`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _FORMAT

    def schema(self) -> StructType | str:
        """The columns."""
        return SCHEMA_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Return the reader."""
        return _ReceiptReader(self.options[_CHECKPOINT])


class _Segments(InputPartition):
    """The segments of one epoch, both ends included."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(None)
        self.first, self.last = first, last


class _ReceiptReader(DataSourceStreamReader):
    """Spark's questions, asked in a process of its own, and tasks' reads."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._known: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position before the first segment."""
        return {OFFSET_KEY: 0}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The newest durable segment; never less than was said before, or by the driver before."""
        receipts = self._log()
        known = receipts.end() if self._known is None else max(self._known, receipts.newest())
        self._known = known
        return {OFFSET_KEY: known}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task for all segments of an epoch: their order is that of the lines."""
        return [_Segments(start[OFFSET_KEY] + 1, end[OFFSET_KEY])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the segments, one after another."""
        assert isinstance(partition, _Segments)
        receipts = self._log()
        for number in range(partition.first, partition.last + 1):
            lines = receipts.read(number)
            added = {
                "segment": pa.array([number] * lines.num_rows, pa.int64()),
                "number": pa.array(range(lines.num_rows), pa.int32()),
            }
            columns = dict(zip(lines.schema.names, lines.columns, strict=True)) | added
            yield pa.RecordBatch.from_pydict(columns)

    def _log(self) -> ReceiptLog:
        return ReceiptLog(open_objects(self._checkpoint))
