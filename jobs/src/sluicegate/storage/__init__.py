"""Epoch log, staging area and lineage of a checkpoint, on a local disk or S3.

`object_store` does the I/O; the other modules define what each object name means.
"""
