"""Finishing what is decided where no query is to follow: all that a driver of that purpose does.

Not here: what is unfinished (`protocol.finishing`), how it is applied (`driver`). Called by `query`
and `batch` instead of starting anything.
"""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from sluicegate.spark.applying import close_writers
from sluicegate.spark.deadline import deadline
from sluicegate.spark.driver import EpochDriver, Wiring

log = logging.getLogger("sluicegate.query")


def finish_decided(spark: SparkSession, wiring: Wiring, timeout_s: float) -> int | None:
    """Apply the newest decision in every sink and let go of everything.

    Returns:
        The epoch that was applied, None if all were in.

    Raises:
        SluicegateError: why it cannot be applied; it stays decided.
    """
    driver = EpochDriver(spark, wiring, lambda epoch: deadline(epoch, timeout_s))
    try:
        epoch = driver.finish_decided()
    finally:
        driver.close()
        close_writers()
        wiring.progress.close()
        wiring.tracing.close()
    done = "nothing was to be finished" if epoch is None else f"epoch {epoch} is in every sink"
    log.info("%s: %s; no query is started", wiring.job.name, done)
    return epoch
