"""Tests of `sluicegate.spark.socket`."""
