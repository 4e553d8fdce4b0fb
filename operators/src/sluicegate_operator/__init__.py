"""The Kubernetes operator for StreamingJob, CheckpointVolume and Savepoint.

docs/concepts/operator.md describes how it works.
"""
