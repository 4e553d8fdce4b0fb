"""Asks a session whether it has a Java class: our own (jobs/java), or Hadoop's."""

from __future__ import annotations

from pyspark.sql import SparkSession


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the JVM of a session can load a class, by its full name."""
    jvm = spark._jvm  # noqa: SLF001 - no public API
    assert jvm is not None, "a classic session, not Spark Connect"
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(name))
