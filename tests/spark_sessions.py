"""Ends a Spark session in a process that goes on. Called by fixtures and `tests.faults.warm`."""

from __future__ import annotations

import gc
import warnings
from typing import Any

from pyspark.sql import SparkSession


def stop(session: SparkSession) -> None:
    """End a session and what outlives one, but the JVM."""
    # the thread that maintains state stores keeps its session's interval
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    session.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # now, not in the middle of what comes next
