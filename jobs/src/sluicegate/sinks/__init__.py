"""Sinks: each writes decided rows with a marker in one transaction. Unaware of each other.

`contract` says what a sink promises; `chunks` is the form of staged rows; `kafka`, `mysql` and
`memory` are sinks. A sink of one's own passes tests/contract.
"""
