"""What is started before the first epoch, and what a standby survives."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError

from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.warm_up import prepare_standby, start_workers

STOPPED = """An error occurred while calling o81.range.
: java.lang.IllegalStateException: LiveListenerBus is stopped.
\tat org.apache.spark.scheduler.LiveListenerBus.addToQueue(LiveListenerBus.scala:93)
"""


def test_workers_that_do_not_start_are_reported_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when a short job stops its session before they have started."""
    spark = Mock()
    spark.sparkContext.defaultParallelism = 2
    spark.range.side_effect = Py4JError(STOPPED)
    with caplog.at_level("INFO", "sluicegate.run"):
        start_workers(spark, [])
        for thread in [t for t in threading.enumerate() if t.name == "start-workers"]:
            thread.join(10)
    (message,) = caplog.messages
    assert message == (
        "the first epoch has to start the Python workers: "
        "java.lang.IllegalStateException: LiveListenerBus is stopped."
    )


def test_no_error_of_a_job_ends_its_standby(caplog: pytest.LogCaptureFixture) -> None:
    """Such as a full disk; the takeover builds the job again."""

    def build() -> EpochsWriter:
        raise OSError(28, "No space left on device")

    assert prepare_standby(Mock(), build) is None
    assert "the standby is not warm" in caplog.text
    assert "No space left on device" in caplog.text
