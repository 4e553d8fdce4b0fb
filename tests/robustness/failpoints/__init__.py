"""Faults: where and how drivers and executors are killed and store requests fail."""
