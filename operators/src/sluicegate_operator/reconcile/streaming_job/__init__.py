"""Reconciliation of a StreamingJob."""
