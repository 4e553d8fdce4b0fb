"""A Spark session for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sluicegate import session
from tests.spark_sessions import stop


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Yield one session for all tests of a file, with the SPARK_SETTINGS of the file if it has any.

    They are set on the running session, because settings with which the first session of a process is
    created become properties of the JVM, and so of every later session.
    """
    module = request.module
    spark_session = session(module.__name__)
    for key, value in getattr(module, "SPARK_SETTINGS", {}).items():
        spark_session.conf.set(key, value)
    yield spark_session
    stop(spark_session)
