"""A Spark session for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sluicegate import session
from tests.spark_sessions import stop


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
    stop(made)
