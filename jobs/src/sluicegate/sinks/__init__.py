"""Sinks: each writes decided rows and a marker in one transaction. Sinks do not know each other.

`contract` defines what a sink promises; a custom sink must pass tests/contract.
"""
