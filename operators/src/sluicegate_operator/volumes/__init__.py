"""What to do about a CheckpointVolume or a Savepoint: pure functions, as `reconcile` is for jobs.

Doors: `volume.reconcile_volume`, `savepoint.reconcile_savepoint`, and for those who read the
resources `reading`. Not here: what is done on an object store (`store`), and Kubernetes.
"""
