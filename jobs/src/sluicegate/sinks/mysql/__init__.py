"""The MySQL and MariaDB sink: rows and a marker row in one InnoDB transaction (rule 12).

Inside, arrows go one way: `sink` (what a user writes) uses `preflight`, that `bound` (what travels
to executors), that `refusals` and `writer`, that `statements`; `columns`, `session` and `faults`
are used by all. Callers outside need `MySQLSink` only.
"""

from sluicegate.sinks.mysql.sink import MySQLSink

__all__ = ["MySQLSink"]
