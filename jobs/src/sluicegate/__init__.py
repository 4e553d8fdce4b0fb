"""Sluicegate: exactly-once streaming on Spark. One epoch reaches every sink, all or nothing.

The public door. `epochs` runs a streaming DataFrame; `KafkaSink` and `MySQLSink` are where it
goes; errors are in `sluicegate.protocol.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
    from sluicegate.settings.job import JobSettings
    from sluicegate.sinks.kafka import KafkaSink
    from sluicegate.sinks.mysql import MySQLSink
    from sluicegate.spark.batch import batch
    from sluicegate.spark.outputs import LateRows
    from sluicegate.spark.query import EpochsQuery, epochs
    from sluicegate.spark.session import session

__all__ = [
    "AVAILABLE_NOW",
    "EpochSettings",
    "EpochsQuery",
    "JobSettings",
    "KafkaSink",
    "LateRows",
    "MySQLSink",
    "batch",
    "epochs",
    "session",
]

_HOMES = {
    "KafkaSink": "sluicegate.sinks.kafka",
    "MySQLSink": "sluicegate.sinks.mysql",
    "LateRows": "sluicegate.spark.outputs",
    "AVAILABLE_NOW": "sluicegate.settings.epoch",
    "EpochSettings": "sluicegate.settings.epoch",
    "JobSettings": "sluicegate.settings.job",
    "EpochsQuery": "sluicegate.spark.query",
    "batch": "sluicegate.spark.batch",
    "epochs": "sluicegate.spark.query",
    "session": "sluicegate.spark.session",
}


def __getattr__(name: str) -> object:
    """Import on first use: an executor or the CLI need not load Spark and every client."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
