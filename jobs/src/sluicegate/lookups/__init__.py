"""Asks a store for what belongs to a key, many keys at a time: asyncio and Arrow, without Spark.

`client` is what a store must offer, `redis_store` the stores that come with it, `asking` how it is
asked, `batches` how the answers get into rows, `loop` what a worker process keeps. Not here: the
DataFrame function `sluicegate.lookup`, which is in `sluicegate.spark.lookups`.
"""
