"""foreachBatch with one SparkSession for all epochs of a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

RunEpoch = Callable[[DataFrame, int], None]

_INTERFACE: Final = "org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction"


def foreach_batch(writer: DataStreamWriter, run: RunEpoch) -> DataStreamWriter:
    """Let a query call `run` with the rows and the number of each micro-batch.

    `DataStreamWriter.foreachBatch` makes a SparkSession for each one, with a dozen calls into the JVM,
    though a query has the same one until it ends.
    """
    gateway: Any = writer._spark.sparkContext._gateway  # noqa: SLF001 - no public API
    sources = gateway.jvm.org.apache.spark.sql.execution.streaming.sources
    callback = _Callback(writer._spark, run)  # noqa: SLF001
    sources.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, callback)  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return writer


class _Callback:
    """What the JVM calls."""

    def __init__(self, spark: SparkSession, run: RunEpoch) -> None:
        self._context, self._run = spark.sparkContext, run
        self._session: SparkSession | None = None

    def call(self, rows: Any, number: int) -> None:  # noqa: ANN401 - Java
        if self._session is None:
            self._session = SparkSession(self._context, rows.sparkSession())
        self._run(DataFrame(rows, self._session), number)

    class Java:
        """The interface, as py4j finds it."""

        implements = (_INTERFACE,)
