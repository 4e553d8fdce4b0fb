"""The Spark settings without which exactly-once does not hold, and a session that has them.

Callers: `query` (checks and sets), the CLI and the demo (build a session).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.told import Told
from sluicegate.spark.conf import KUBERNETES, check_conf, joined, on_kubernetes
from sluicegate.storage.objects import Objects

JARS_VARIABLE = "SLUICEGATE_JARS"
"""A directory of jars that the session loads: Spark's Kafka connector and what it needs."""

CLASS_ARCHIVE = "driver.jsa"
"""In that directory: the JVM's archive of loaded classes (JEP 350), which halves a driver's start."""

_STATE = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

STATE_BACKENDS: Mapping[str, str] = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "hdfs": f"{_STATE}.HDFSBackedStateStoreProvider",
}
"""Spark's names of the state backends."""

RUNTIME_SETTINGS: Mapping[str, str] = {
    # rule 6: Spark does not know that a Python map may answer differently when it is rerun
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    # rule 16: a replayed epoch skips its plan, so its state is committed by the try before
    "spark.sql.streaming.stateStore.commitValidation.enabled": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    _PROVIDER: STATE_BACKENDS["rocksdb"],
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # SPARK-45178: else a source that knows nothing of available-now is given one epoch, and where
    # that one is a replay, what came after it is left
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
    # SPARK-53103: else what a driver leaves that died while it wrote its first offsets (a temporary
    # file) is refused at every later start; that an epoch was decided is for our own log to say
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # RocksDB's caches and write buffers, all partitions of a process together
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "512",
    # event times are written to sinks as UTC
    "spark.sql.session.timeZone": "UTC",
    # a staged batch is encoded at once: fewer, larger ones
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
"""Set on the session when a query starts; a query keeps what it was started with."""

MEMORY_VARIABLE = "SLUICEGATE_DRIVER_MEMORY"
"""The heap of the driver's JVM, such as 2g; Spark's default is 1g."""

_STATIC_SETTINGS: Mapping[str, str] = {
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "sluicegate.spark.worker_daemon",
}


def session(
    name: str,
    *,
    master: str = "local[2]",
    shuffle_partitions: int = 2,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with every setting that Sluicegate needs.

    What the environment says of master and settings (`sluicegate.settings.told`) wins over the
    arguments, and they win over the defaults here.

    Args:
        name: the application's name.
        master: Spark's master URL; default two threads in this process's JVM.
        shuffle_partitions: state partitions of a new checkpoint; an old one keeps its number.
        settings: anything else, such as memory.

    Raises:
        SettingsInvalid: the environment gives Spark a setting that breaks a rule.
    """
    told = Told.read()
    master = told.master or master
    check_conf(told.spark_conf)
    if master.startswith(("local", KUBERNETES)):  # workers run what the driver runs
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    ours = {**_STATIC_SETTINGS, **RUNTIME_SETTINGS, **_jar_settings(master)}
    if master.startswith(KUBERNETES):
        ours |= on_kubernetes(os.environ)
    ours["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    ours["spark.driver.memory"] = os.environ.get(MEMORY_VARIABLE, "1g")
    for key, value in joined(ours, {**(settings or {}), **told.spark_conf}).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    # an error that ends the query is raised and logged once, by us, with what to do about it
    made.sparkContext.setLogLevel(os.environ.get("SLUICEGATE_SPARK_LOG", "FATAL"))
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return made


def _jar_settings(master: str) -> dict[str, str]:
    """Return what puts the jars on the class path of the driver, and of executors elsewhere."""
    named = os.environ.get(JARS_VARIABLE)
    if not named:
        return {}
    folder = Path(named).resolve()
    jars = sorted(str(path) for path in folder.glob("*.jar"))
    # on the path that the JVM starts with, not added later: only those classes are archived
    settings = {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    if not master.startswith("local["):
        settings["spark.jars"] = ",".join(jars)
    archive = folder / CLASS_ARCHIVE
    if archive.is_file():
        # one made by another JVM or of other jars is not used, and nothing needs to be said
        options = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off"]
        settings["spark.driver.extraJavaOptions"] = " ".join(
            [f"-XX:SharedArchiveFile={archive}", *options]
        )
    return settings


def prepare(spark: SparkSession, state_backend: str = "rocksdb") -> None:
    """Give a user's session the runtime settings; refuse one whose static settings break a rule.

    Args:
        spark: the session.
        state_backend: 'rocksdb' or 'hdfs'.

    Raises:
        SettingsInvalid: speculation is on: two copies of a task would stage side by side; or the
            environment gives a setting that breaks a rule.
    """
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise SettingsInvalid(
            "spark.speculation is on",
            data="nothing was started",
            do="set spark.speculation=false for streaming jobs (rule 6 of the design)",
        )
    told = Told.read().spark_conf
    check_conf(told)
    # what may be chosen, such as the memory of state, was chosen for the session
    chosen = {key: value for key, value in told.items() if key in RUNTIME_SETTINGS}
    wanted = {**RUNTIME_SETTINGS, **chosen, _PROVIDER: STATE_BACKENDS[state_backend]}
    for key, value in wanted.items():
        spark.conf.set(key, value)


def check_state_backend(objects: Objects, state_backend: str) -> None:
    """See that a checkpoint's state is kept as the job wants it; Spark would go on with the old.

    Raises:
        SettingsInvalid: it was started with another backend.
    """
    newest = max(
        (n for n in map(_number, objects.names("offsets/")) if n is not None), default=None
    )
    stored = None if newest is None else objects.read(f"offsets/{newest}")
    lines = (stored or b"").decode().splitlines()
    started = json.loads(lines[1])["conf"].get(_PROVIDER) if len(lines) > 1 else None
    if started not in (None, STATE_BACKENDS[state_backend]):
        there = {name: backend for backend, name in STATE_BACKENDS.items()}.get(started, started)
        raise SettingsInvalid(
            f"the checkpoint keeps its state in {there}, the job wants {state_backend}",
            data="nothing was started",
            do=f"set state-backend to {there}, or start with a fresh checkpoint",
        )


def _number(name: str) -> int | None:
    tail = name.rpartition("/")[2]
    return int(tail) if tail.isdecimal() else None
