"""The operator: StreamingJob, CheckpointVolume and Savepoint on Kubernetes.

Here so far: `resources` (what the resources hold, and the schemas made from that), `crds` (the
command that prints them) and `reconcile` (what to do about a StreamingJob, as a pure function).
Not here yet: anything that talks to a cluster (operators/DESIGN.md).
"""
