"""Sluicegate: exactly-once streaming on Spark. Each epoch reaches every sink, or none.

The public names: `epochs` runs a streaming DataFrame and `batch` any other; `KafkaSink` and `MySQLSink`
are their sinks; `lookup` adds columns from a store. Errors are in `sluicegate.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluicegate.lookups.client import AskEach as AskEach
    from sluicegate.lookups.redis import RedisHash as RedisHash
    from sluicegate.lookups.redis import RedisKeys as RedisKeys
    from sluicegate.lookups.settings import Cache as Cache
    from sluicegate.packaged_job import JobSettings as JobSettings
    from sluicegate.settings.epoch import AVAILABLE_NOW as AVAILABLE_NOW
    from sluicegate.settings.epoch import EpochSettings as EpochSettings
    from sluicegate.sinks.kafka import KafkaSink as KafkaSink
    from sluicegate.sinks.mysql import MySQLSink as MySQLSink
    from sluicegate.spark.batch import batch as batch
    from sluicegate.spark.dropped_rows import DroppedRows as DroppedRows
    from sluicegate.spark.epochs import epochs as epochs
    from sluicegate.spark.late_rows import LateRows as LateRows
    from sluicegate.spark.lookup import lookup as lookup
    from sluicegate.spark.outputs import refuse as refuse
    from sluicegate.spark.query import EpochsQuery as EpochsQuery
    from sluicegate.spark.session import session as session

_MODULES = {
    "AVAILABLE_NOW": "settings.epoch",
    "AskEach": "lookups.client",
    "Cache": "lookups.settings",
    "DroppedRows": "spark.dropped_rows",
    "EpochSettings": "settings.epoch",
    "EpochsQuery": "spark.query",
    "JobSettings": "packaged_job",
    "KafkaSink": "sinks.kafka",
    "LateRows": "spark.late_rows",
    "MySQLSink": "sinks.mysql",
    "RedisHash": "lookups.redis",
    "RedisKeys": "lookups.redis",
    "batch": "spark.batch",
    "epochs": "spark.epochs",
    "lookup": "spark.lookup",
    "refuse": "spark.outputs",
    "session": "spark.session",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """Import a name on first use, so that executors and the CLI do not load Spark and every client."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
