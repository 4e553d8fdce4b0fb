"""Reconciliation of a Savepoint."""
