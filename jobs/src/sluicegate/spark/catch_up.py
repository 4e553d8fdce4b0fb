"""Starts the next epoch of a job that is behind at once, and not at its next trigger."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from pyspark.sql import SparkSession

from sluicegate.spark.java_classes import has_class
from sluicegate.spark.query_execution import JavaObject, RunningExecution

_CLOCK: Final = "dev.sluicegate.spark.CatchUpClock"
"""Replaces the clock of a query's trigger; source in jobs/java."""


class CatchUp:
    """Lets a query skip the wait for its trigger after an epoch that leaves records in a Kafka source.

    Spark starts an epoch at each multiple of the interval. A job that is behind would read
    `maxOffsetsPerTrigger` records in each interval, and be idle for the rest of it. A session without
    our classes waits, and so does a query with other sources, whose lag is not known.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._clock: JavaObject | None = None

    def planned(self, execution: RunningExecution, lag: int) -> None:
        """Decide, in an epoch, whether the next one waits.

        Args:
            execution: the epoch's.
            lag: the number of records that it leaves in Kafka sources.
        """
        if not lag or not self._is_possible:
            return
        if self._clock is None:
            jvm: JavaObject = self._spark._jvm  # noqa: SLF001 - no public API
            self._clock = jvm.dev.sluicegate.spark.CatchUpClock.of(execution.query)
        self._clock.skipNextWait()

    @cached_property
    def _is_possible(self) -> bool:
        return has_class(self._spark, _CLOCK)
