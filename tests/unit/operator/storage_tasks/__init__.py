"""Tests of storage tasks: queue, reconcile loop and worker."""
