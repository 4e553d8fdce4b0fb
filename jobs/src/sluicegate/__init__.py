"""Sluicegate: exactly-once streaming on Spark. One epoch reaches every sink, all or nothing.

The public door. `epochs` runs a streaming DataFrame; `KafkaSink` and `MySQLSink` are where it
goes; `lookup` adds what a store knows; errors are in `sluicegate.protocol.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluicegate.lookups.client import AskEach
    from sluicegate.lookups.redis_store import RedisHash, RedisKeys
    from sluicegate.lookups.settings import Cache
    from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
    from sluicegate.settings.job import JobSettings
    from sluicegate.sinks.kafka import KafkaSink
    from sluicegate.sinks.mysql import MySQLSink
    from sluicegate.spark.batch import batch
    from sluicegate.spark.lookups import lookup
    from sluicegate.spark.outputs import LateRows, refuse
    from sluicegate.spark.query import EpochsQuery, epochs
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

_HOMES = {
    "AskEach": "sluicegate.lookups.client",
    "Cache": "sluicegate.lookups.settings",
    "RedisHash": "sluicegate.lookups.redis_store",
    "RedisKeys": "sluicegate.lookups.redis_store",
    "lookup": "sluicegate.spark.lookups",
    "refuse": "sluicegate.spark.outputs",
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
