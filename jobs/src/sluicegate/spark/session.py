"""The Spark settings that exactly-once requires, and a session that has them."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import TextIO

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sluicegate.deployment.environment import DriverEnvironment, DriverVariable
from sluicegate.errors import SettingsInvalid
from sluicegate.spark.class_archive import jar_settings
from sluicegate.spark.compilers import lower_priority
from sluicegate.spark.conf import (
    JARS_VARIABLE,
    KUBERNETES,
    REQUIRED,
    check_conf,
    kubernetes_conf,
    merge,
)
from sluicegate.spark.event_log import event_log_settings
from sluicegate.spark.start_times import OF_PROCESS, StartPart
from sluicegate.storage.object_store import ObjectStore

_BETWEEN = "\0"
"""Stands between two settings; no setting contains it."""

_STATE = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

STATE_BACKENDS: Mapping[str, str] = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "hdfs": f"{_STATE}.HDFSBackedStateStoreProvider",
}
"""Spark's names of the state backends."""

CHANGELOG_CHECKPOINTING = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""Whether a commit of state writes a changelog, and a snapshot only now and then."""

RUNTIME_SETTINGS: Mapping[str, str] = {
    **{key: value for key, (value, _) in REQUIRED.items() if key.startswith("spark.sql.")},
    _PROVIDER: STATE_BACKENDS["rocksdb"],
    CHANGELOG_CHECKPOINTING: "true",
    # for RocksDB's caches and write buffers, for all partitions of a process together
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "512",
    # each staged batch is encoded separately: fewer and larger ones are faster
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # a batch of long records would otherwise be a chunk of 64 MiB; a chunk is closed at this size
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}
"""Set on the session when a query starts; a running query keeps the settings of its start."""

_JAVA_OPTIONS = (
    # a JVM without memory loses threads one by one; a process that has ended is replaced
    "-XX:+ExitOnOutOfMemoryError "
    # in seconds; with the default of 30 a JVM keeps connecting to the former address of a pod
    "-Dsun.net.inetaddr.ttl=5"
)

_STATIC_SETTINGS: Mapping[str, str] = {
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    # who may see the UI may not end tasks by it
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
    # through TCP each task waits 40 ms for a delayed acknowledgment (docs/decisions/0105)
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "sluicegate.spark.worker_daemon",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
}


def session(
    name: str,
    *,
    master: str = "local[2]",
    shuffle_partitions: int = 2,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with every setting that Sluicegate needs.

    Master and settings of the environment (`sluicegate.deployment.environment`) win over the
    arguments, and the arguments win over the defaults.

    Args:
        name: the application's name.
        master: Spark's master URL; default: two threads in this process's JVM.
        shuffle_partitions: number of state partitions of a new checkpoint, default 2; an existing
            one keeps its number.
        settings: other Spark settings, such as memory.

    Raises:
        SettingsInvalid: a Spark setting of the environment breaks a rule.
    """
    environment = DriverEnvironment.read()
    master = environment.master or master
    check_conf(environment.spark_conf)
    if master.startswith(("local", KUBERNETES)):  # workers use the Python of the driver
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = {**_STATIC_SETTINGS, **RUNTIME_SETTINGS}
    if folder := os.environ.get(JARS_VARIABLE):
        ours = merge(ours, jar_settings(Path(folder).resolve(), master))
    if master.startswith(KUBERNETES):
        ours |= kubernetes_conf(os.environ)
    ours["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    ours["spark.driver.memory"] = os.environ.get(DriverVariable.DRIVER_MEMORY, "1g")
    merged = merge(ours, {**(settings or {}), **environment.spark_conf})
    # without defaults: those of a JVM that runs would become settings of this session
    conf = SparkConf(loadDefaults=False).setAppName(name).setMaster(master)
    conf.setAll([*merged.items(), *event_log_settings(merged).items()])
    with OF_PROCESS.part(StartPart.SESSION):
        SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 - starts the JVM, and no more
        if (jvm := jvm_process()) is not None:
            lower_priority(jvm.pid)
        created = SparkSession.builder.config(conf=conf).getOrCreate()
    # we raise and log an error that ends the query ourselves, once and with advice
    created.sparkContext.setLogLevel(os.environ.get("SLUICEGATE_SPARK_LOG", "FATAL"))
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return created


def jvm_process() -> Popen[bytes] | None:
    """Return the process of the JVM; None under spark-submit, which has started it."""
    process: Popen[bytes] | None = SparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001
    return process


_beginning: dict[str, Future[SparkSession]] = {}
"""The sessions that are created in the background, by name."""


def begin_session(name: str) -> None:
    """Create a session in the background; `created_session` returns it, or raises its error."""
    created: Future[SparkSession] = Future()

    def create() -> None:
        try:
            created.set_result(session(name))
        except BaseException as error:  # noqa: BLE001 - raised where the session is needed
            created.set_exception(error)

    _beginning[name] = created
    threading.Thread(target=create, name="session", daemon=True).start()
    # pyspark imports it, and pandas with it, when the JVM has started. If the job imported a submodule
    # of pandas meanwhile, pandas would stay half imported in this process.
    importlib.import_module("pyspark.testing.utils")


def created_session(name: str) -> SparkSession:
    """Wait for the session that was begun, or create one.

    Raises:
        SettingsInvalid: a Spark setting of the environment breaks a rule.
    """
    begun = _beginning.pop(name, None)
    if begun is None:
        return session(name)
    created = begun.result()
    # it is active only in the thread that created it, and a job may ask for the active one
    sessions = SparkSession._get_j_spark_session_class(created._jvm)  # noqa: SLF001
    sessions.setActiveSession(created._jsparkSession)  # noqa: SLF001
    return created


class _DefaultHandler(logging.StreamHandler[TextIO]):
    """Shows the records of this library on stderr until the root logger has a handler."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


def log_by_default() -> None:
    """Show progress on stderr if logging is not set up, neither for the root nor for this library."""
    library = logging.getLogger("sluicegate")
    names = [name for name in library.manager.loggerDict if name.startswith("sluicegate.")]
    parts = [logging.getLogger(name) for name in names]
    if library.level or library.hasHandlers() or any(part.handlers for part in parts):
        return
    handler = _DefaultHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    library.addHandler(handler)
    library.setLevel(logging.INFO)


def prepare(spark: SparkSession, state_backend: str = "rocksdb") -> None:
    """Apply the runtime settings to a user's session.

    Raises:
        SettingsInvalid: speculation is on, so two copies of a task would stage at the same time; or
            a setting of the environment breaks a rule.
    """
    if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise SettingsInvalid(
            "spark.speculation is on",
            data="nothing was started",
            do="set spark.speculation=false for streaming jobs (rule 6 of docs/concepts/protocol.md)",
        )
    given = DriverEnvironment.read().spark_conf
    check_conf(given)
    # the environment may override some of them, such as the memory for state
    overrides = {key: value for key, value in given.items() if key in RUNTIME_SETTINGS}
    # those of the session's own that break no rule
    own = {key: value for key, value in all_settings(spark).items() if key not in REQUIRED}
    kept = {key: own.get(key, value) for key, value in RUNTIME_SETTINGS.items()}
    settings = {**kept, **overrides, _PROVIDER: STATE_BACKENDS[state_backend]}
    for key, value in settings.items():
        spark.conf.set(key, value)


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for the queries that start in the block; they keep those of their start.

    Afterwards it has those of before; a setting that was not set is not set again.
    """
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def all_settings(spark: SparkSession) -> dict[str, str]:
    """Return all settings of a session, in one call of the JVM.

    `spark.conf.getAll` makes several for each setting: a tenth of a second, on a busy machine one.
    """
    text = spark._jsparkSession.conf().getAll().mkString(_BETWEEN)  # noqa: SLF001 - a Scala map
    pairs = (entry.partition(" -> ") for entry in text.split(_BETWEEN))
    return {key: value for key, _, value in pairs}


def check_state_backend(checkpoint: ObjectStore, state_backend: str) -> None:
    """Check that a checkpoint has the job's state backend; Spark would silently keep the old one.

    Raises:
        SettingsInvalid: the checkpoint was started with another backend.
    """
    tails = (name.rpartition("/")[2] for name in checkpoint.names("offsets/"))
    newest = max((int(tail) for tail in tails if tail.isdecimal()), default=None)
    stored = None if newest is None else checkpoint.read(f"offsets/{newest}")
    lines = (stored or b"").decode().splitlines()
    started = json.loads(lines[1])["conf"].get(_PROVIDER) if len(lines) > 1 else None
    if started not in (None, STATE_BACKENDS[state_backend]):
        found = {name: backend for backend, name in STATE_BACKENDS.items()}.get(started, started)
        raise SettingsInvalid(
            f"the checkpoint has its state in {found}, but the job has state-backend {state_backend}",
            data="nothing was started",
            do=f"set state-backend to {found}, or start with a fresh checkpoint",
        )
