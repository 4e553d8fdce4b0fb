"""Epoch log, staging and lineage over one checkpoint volume: a local disk or S3.

`objects` is the only module that touches a store; the others say which names mean what.
"""
