"""Chooses the Java classes that write Spark's own checkpoint files, and those of its state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

from pyspark.sql import SparkSession

from sluicegate.spark import s3a
from sluicegate.spark.java_classes import has_class
from sluicegate.spark.session import temporary_settings
from sluicegate.storage.s3_config import is_s3

LOCAL_FILE_MANAGER: Final = "dev.sluicegate.spark.LocalCheckpointFileManager"
"""Creates a file once by a hard link, and starts no process; source in jobs/java."""

_CLASS: Final = "spark.sql.streaming.checkpointFileManagerClass"
_COPIES: Final = {
    "fs.file.impl": "dev.sluicegate.spark.LocalFiles",
    # otherwise it is the one that the JVM has used before, whatever its class
    "fs.file.impl.disable.cache": "true",
}
"""Settings by which the files of a state are copied without a process for each; source in jobs/java."""


def checkpoint_files(spark: SparkSession, checkpoint: str) -> AbstractContextManager[None]:
    """Return a block in which a query that starts uses the checkpoint file manager of its store.

    Other queries of the session are not affected. A session without our classes writes to a disk with
    Spark's own, which are correct there, and slower.
    """
    return temporary_settings(spark, _settings(spark, checkpoint))


def _settings(spark: SparkSession, checkpoint: str) -> Mapping[str, str]:
    if is_s3(checkpoint):
        return {_CLASS: s3a.FILE_MANAGER, **s3a.QUERY_SETTINGS, **_COPIES}
    return {_CLASS: LOCAL_FILE_MANAGER, **_COPIES} if has_class(spark, LOCAL_FILE_MANAGER) else {}
