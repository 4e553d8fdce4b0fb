"""Fetches values for keys from a store, with asyncio and Arrow, without Spark.

The DataFrame function `sluicegate.lookup` is in `sluicegate.spark.lookup`.
"""
