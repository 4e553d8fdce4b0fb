"""Flink as a contender: its SQL on a cluster in one JVM, with the source, sink and broker of the others.

`program` installs what it needs, `job` has its settings and SQL.
"""
