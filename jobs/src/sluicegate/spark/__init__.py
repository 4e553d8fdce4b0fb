"""The only importer of pyspark: runs the protocol inside Structured Streaming's foreachBatch.

`query` is the door; it wires `outputs` (what the epoch consists of), `staging` (executors make
it durable), `applying` (sinks get it), `plan` (the running plan: watermarks, state) and
`session` (the settings without which the guarantee does not hold).
"""
