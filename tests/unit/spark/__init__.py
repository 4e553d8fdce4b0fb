"""Tests of `sluicegate.spark` that need no JVM."""
