"""Sluicegate: exactly-once streaming on Spark. Each epoch reaches every sink, or none.

The public names: `epochs` runs a streaming DataFrame and `batch` any other; `KafkaSink` and `MySQLSink`
are their sinks; `lookup` adds columns from a store. Errors are in `sluicegate.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluicegate.lookups.client import AskEach
    from sluicegate.lookups.redis import RedisHash, RedisKeys
    from sluicegate.lookups.settings import Cache
    from sluicegate.packaged_job import JobSettings
    from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
    from sluicegate.sinks.kafka import KafkaSink
    from sluicegate.sinks.mysql import MySQLSink
    from sluicegate.spark.batch import batch
    from sluicegate.spark.epochs import epochs
    from sluicegate.spark.lookup import lookup
    from sluicegate.spark.outputs import LateRows, refuse
    from sluicegate.spark.query import EpochsQuery
    from sluicegate.spark.session import session

__all__ = [
    "AVAILABLE_NOW",
    "AskEach",
    "Cache",
    "EpochSettings",
    "EpochsQuery",
    "JobSettings",
    "KafkaSink",
    "LateRows",
    "MySQLSink",
    "RedisHash",
    "RedisKeys",
    "batch",
    "epochs",
    "lookup",
    "refuse",
    "session",
]

_MODULES = {
    "AskEach": "sluicegate.lookups.client",
    "Cache": "sluicegate.lookups.settings",
    "RedisHash": "sluicegate.lookups.redis",
    "RedisKeys": "sluicegate.lookups.redis",
    "lookup": "sluicegate.spark.lookup",
    "refuse": "sluicegate.spark.outputs",
    "KafkaSink": "sluicegate.sinks.kafka",
    "MySQLSink": "sluicegate.sinks.mysql",
    "LateRows": "sluicegate.spark.outputs",
    "AVAILABLE_NOW": "sluicegate.settings.epoch",
    "EpochSettings": "sluicegate.settings.epoch",
    "JobSettings": "sluicegate.packaged_job",
    "EpochsQuery": "sluicegate.spark.query",
    "batch": "sluicegate.spark.batch",
    "epochs": "sluicegate.spark.epochs",
    "session": "sluicegate.spark.session",
}


def __getattr__(name: str) -> object:
    """Import a name on first use, so that executors and the CLI do not load Spark and every client."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
