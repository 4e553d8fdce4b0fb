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
    """Give one session to all tests of a file; its SPARK_SETTINGS, if it has any, are added."""
    module = request.module
    made = session(module.__name__, settings=getattr(module, "SPARK_SETTINGS", None))
    yield made
    # the thread that maintains state stores outlives a session, and keeps that session's interval
    jvm: Any = made._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    made.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # now, not in the middle of another file's test
