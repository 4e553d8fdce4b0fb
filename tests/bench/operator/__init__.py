"""The operator's own speed, beside the peers' path: a JVM of spark-submit for each job.

`stage` has the parts (a real API server, etcd and S3 server, the operator as a process of its own),
`rounds` measures, `submit` is the peers' path, `table` prints. Called by `tests.bench`.
"""
