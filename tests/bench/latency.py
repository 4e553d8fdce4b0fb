"""One latency run: a paced producer in this process, the contender and a reader in their own.

Latency is the time from when a record was due to be sent until the read_committed reader receives it, or
until its row is visible in MySQL. Records that are not measured are sent before and after the measured ones
until all of those were seen, so no epoch is measured in which the input starts or ends.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from infra.local_services import MySQLEndpoint, Services
from infra.toolchain import maven
from tests.bench import child, paced, profiling, reader, sinks
from tests.bench.alongside import alongside
from tests.bench.child import RunFailed
from tests.bench.contender import STOP
from tests.bench.epochs import irregular, read_epochs
from tests.bench.figures import Run
from tests.bench.flink import job as flink
from tests.bench.flink import program as flink_program
from tests.bench.order import Order
from tests.bench.phases import phase_times, repeated
from tests.bench.plan import (
    FLINK,
    LATENCY_PARTITIONS,
    MYSQL_LATENCY,
    SPARK_JDBC,
    Pace,
)
from tests.bench.profiling import Profilers
from tests.bench.usage import cpu_s

WARM_EPOCHS = 5
"""Committed epochs after which the measured records are sent."""

_START_S = 120.0
_READ_S = 120.0
_SLIPPED = 1.05


def run(
    contender: str,
    round_: int,
    pace: Pace,
    services: Services,
    base: Path,
    profilers: Profilers | None = None,
) -> Run:
    """Run a contender once; report any error as the run's anomaly.

    Args:
        contender: its name.
        round_: the number of the round.
        pace: of the input.
        services: where source and sink are.
        base: folder for the folder of the run.
        profilers: profile the contender while the measured records are sent; None: do not.
    """
    turn = re.sub("[ ,_]+", "-", f"{pace.name}-{contender}-{round_}")
    folder = base / turn
    folder.mkdir(parents=True)
    stem = f"{base.name}-{turn}"
    order = Order(
        kind=pace.kind,
        contender=contender,
        bootstrap=services.kafka.bootstrap,
        source=f"{stem}-source",
        sink=f"{stem}-sink",
        dead_letters="",
        table=stem.replace("-", "_")[-50:] if pace.kind == MYSQL_LATENCY else "",
        epoch_records=pace.epoch_records,
        trigger=pace.trigger,
    )
    order.write(folder)
    reader.ReaderOrder(order.bootstrap, order.sink, order.table, pace.records).write(folder)
    services.kafka.create_topic(order.source, LATENCY_PARTITIONS)
    sinks.create(order, services, LATENCY_PARTITIONS)
    if contender == SPARK_JDBC:
        maven.fetch("jdbc")
    try:
        mysql = services.mysql if order.table else None
        return _measured(order, round_, pace, folder, mysql, profilers)
    except RunFailed as error:
        return Run(pace.name, contender, round_, anomaly=str(error))
    finally:
        services.kafka.delete_topic(order.source)
        sinks.drop(order, services)


def _measured(
    order: Order,
    round_: int,
    pace: Pace,
    folder: Path,
    mysql: MySQLEndpoint | None,
    profilers: Profilers | None,
) -> Run:
    with (
        child.running("tests.bench.reader", folder, mysql) as reader_process,
        _contender(order, folder, mysql) as process,
    ):
        child.await_ready((folder / reader.READY).exists, folder, reader_process, _START_S)
        with _unmeasured(order, pace):
            time.sleep(pace.warm_s)
            child.await_ready(lambda: _is_warm(order, folder), folder, process, _START_S)
        begin_ms = time.time() * 1000
        before_s = cpu_s(process.pid), cpu_s(reader_process.pid)
        name = f"{pace.name.replace(', ', '-').replace(' ', '-')}.{order.contender}"
        with profiling.profiling(profilers, name, process.pid, folder):
            sent = paced.send(order.bootstrap, order.source, pace, paced.MEASURED)
        after_s = cpu_s(process.pid), cpu_s(reader_process.pid)
        end_ms = time.time() * 1000
        with _unmeasured(order, pace):
            (folder / reader.SENT).touch()
            child.await_ready((folder / reader.ALL_SEEN).exists, folder, reader_process, _READ_S)
        if order.contender != FLINK:  # which reads its topic until it is killed
            (folder / STOP).touch()
            child.await_exit(process, _START_S, "the contender")
        child.await_exit(reader_process, _READ_S, "the reader")
    summary: dict[str, Any] = json.loads((folder / reader.SEEN).read_text(encoding="utf-8"))
    late = sent.took_s > pace.seconds * _SLIPPED
    for anomaly in (
        f"{summary['missing']:,} records are missing" if summary["missing"] else "",
        f"{summary['repeated']:,} records arrived twice" if summary["repeated"] else "",
        f"sending took {sent.took_s:.1f} s instead of {pace.seconds:.0f}" if late else "",
    ):
        if anomaly:
            raise RunFailed(anomaly)
    phases = {} if order.contender == FLINK else _phases(folder, begin_ms, end_ms)
    cores = [(end - begin) / sent.took_s for begin, end in zip(before_s, after_s, strict=True)]
    figures = {
        **{name: float(summary[name]) for name in ("p50_ms", "p99_ms", "max_ms")},
        "cores": cores[0],
        "reader_cores": cores[1],
        "sender_cores": sent.cores,
        "sender_behind_ms": sent.behind_ms,
    }
    return Run(pace.name, order.contender, round_, figures=figures, phases=phases)


def _contender(
    order: Order, folder: Path, mysql: MySQLEndpoint | None
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    if order.contender == FLINK:
        command = flink.command(flink_program.install(), order, folder, mysql)
        return child.running_command(command, folder / child.LOG)
    return child.running("tests.bench.contender", folder, mysql)


def _is_warm(order: Order, folder: Path) -> bool:
    """Return whether a contender has committed its first epochs or checkpoints."""
    if order.contender == FLINK:
        made = (folder / "checkpoint").glob("*/chk-*")
        return any(int(path.name.removeprefix("chk-")) >= WARM_EPOCHS for path in made)
    commits = (folder / "checkpoint" / "commits").glob("[0-9]*")  # Spark deletes old ones
    return any(int(path.name) >= WARM_EPOCHS - 1 for path in commits)


def _phases(folder: Path, begin_ms: float, end_ms: float) -> dict[str, list[float]]:
    """Return the times of the phases of a contender on Spark, of the epochs between two times.

    Raises:
        RunFailed: an epoch is missing, or was repeated.
    """
    epochs, spans = read_epochs(child.result(folder)["progress"]), list(child.spans(folder))
    if anomaly := irregular(epochs, None) or repeated(spans):
        raise RunFailed(anomaly)
    measured = [e for e in epochs if e.start_ms >= begin_ms and e.end_ms <= end_ms]
    return phase_times(spans, measured, 0)


def _unmeasured(order: Order, pace: Pace) -> AbstractContextManager[None]:
    """Send records that are not measured at the same pace while the block runs."""
    return alongside(partial(paced.send, order.bootstrap, order.source, pace, paced.WARM_UP))
