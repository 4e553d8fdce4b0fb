"""The MySQL and MariaDB sink: rows and a marker row in one InnoDB transaction (rule 12)."""

from sluicegate.sinks.mysql.sink import MySQLSink

__all__ = ["MySQLSink"]
