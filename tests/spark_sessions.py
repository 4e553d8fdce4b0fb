"""Stops a Spark session in a process that continues."""

from __future__ import annotations

import gc
import warnings
from typing import Any

from pyspark.sql import SparkSession


def stop(session: SparkSession) -> None:
    """Stop a session and everything that outlives it, except the JVM."""
    # the maintenance thread of the state stores keeps its session's interval
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    session.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # now, not during the next test
