"""A Spark session for the tests of a file. Called by pytest only."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluicegate import session


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Give one session to all tests of a file, with its SPARK_SETTINGS if it has any.

    They are set on the session: what the first session of a process is made with becomes a property of
    the JVM, and with that a setting of every session after it.
    """
    module = request.module
    made = session(module.__name__)
    for key, value in getattr(module, "SPARK_SETTINGS", {}).items():
        made.conf.set(key, value)
    yield made
    # the thread that maintains state stores outlives a session, and keeps that session's interval
    jvm: Any = made._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    made.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # now, not in the middle of another file's test
