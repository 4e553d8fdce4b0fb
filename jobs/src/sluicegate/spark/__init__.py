"""Runs the protocol in Structured Streaming's foreachBatch; only this package and jobs import pyspark.

`epochs` and `batch` describe a job. `query` runs it: `epoch_runner` takes each epoch through the
coordinator, with `ports` over `staging` (executors make the rows durable), `apply` (sinks get them) and
`query_execution` (watermarks and state of the running plan).
"""
