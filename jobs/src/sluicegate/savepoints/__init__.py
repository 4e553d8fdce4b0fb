"""Savepoints of a checkpoint, and requests to stop the job that runs on it."""
