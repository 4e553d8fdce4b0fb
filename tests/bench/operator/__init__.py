"""Compares the operator's speed with its peers' method: a spark-submit JVM for each job.

`scenario` starts the parts (a real API server, etcd, an S3 server, and the operator as its own process),
`rounds` measures, `spark_submit` is the peers' method, and `report` renders the table.
"""
