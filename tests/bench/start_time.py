"""Time from the start of a driver's process to its first epoch, against the length of the epoch log.

A real run of one epoch writes the checkpoint. The library's own code then writes records and reports of
epochs without rows, and each gets a copy of Spark's offsets and commit, until the log has its length. The
start that is measured has 1,000 new records to copy, so its first epoch is in the sink when it ends.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from infra.local_services import Services
from sluicegate.protocol.record import DecidedEpoch, EpochRecord
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import EpochReport, TimedStep, write_report
from tests.bench import child, produce, sinks
from tests.bench.child import RunFailed
from tests.bench.console.checkpoints import UnsyncedStore
from tests.bench.contender import RESULT
from tests.bench.epochs import read_epochs
from tests.bench.figures import Run
from tests.bench.growth import Start
from tests.bench.order import Order
from tests.bench.plan import PASS_THROUGH, SLUICEGATE, Workload
from tests.bench.readback import Content

_RECORDS = 1000
_TIMEOUT_S = 600.0
_STEP_MS = 100.0


def run(start: Start, round_: int, services: Services, base: Path) -> Run:
    """Run once; report any error as the run's anomaly."""
    folder = base / f"{start.name}-{round_}"
    folder.mkdir(parents=True)
    stem = f"{base.name}-{start.name}-{round_}"
    order = Order(
        kind=PASS_THROUGH,
        contender=SLUICEGATE,
        bootstrap=services.kafka.bootstrap,
        source=f"{stem}-source",
        sink=f"{stem}-sink",
        dead_letters="",
        table="",
        epoch_records=10 * _RECORDS,
        trigger=AVAILABLE_NOW,
    )
    order.write(folder)
    workload = Workload(start.name, PASS_THROUGH, 100, _RECORDS, order.epoch_records, (SLUICEGATE,))
    services.kafka.create_topic(order.source, workload.partitions)
    sinks.create(order, services, workload.partitions)
    try:
        return _measured(start, round_, order, workload, services, folder)
    except (RunFailed, TimeoutError) as error:
        return Run(start.name, SLUICEGATE, round_, anomaly=str(error))
    finally:
        services.kafka.delete_topic(order.source)
        sinks.drop(order, services)


def _measured(
    start: Start, round_: int, order: Order, workload: Workload, services: Services, folder: Path
) -> Run:
    once = produce.fill(order.bootstrap, order.source, workload)
    _run(folder)
    written = extend_log(folder / "checkpoint", start.epochs)
    (folder / RESULT).unlink()
    produce.fill(order.bootstrap, order.source, workload)
    started_ms = time.time() * 1000
    _run(folder)
    epochs = read_epochs(child.result(folder)["progress"])
    if [epoch.number for epoch in epochs] != [written]:
        numbers = [epoch.number for epoch in epochs]
        raise RunFailed(f"the start ran epochs {numbers} instead of epoch {written}")
    expected = Content(2 * once.rows, 2 * once.total)
    problem, _ = sinks.read_back(order, expected, services.mysql)
    if problem:
        raise RunFailed(problem)
    figures = {
        "query_s": (epochs[0].start_ms - started_ms) / 1000,
        "first_epoch_s": (epochs[0].end_ms - started_ms) / 1000,
    }
    return Run(start.name, SLUICEGATE, round_, figures=figures)


def _run(folder: Path) -> None:
    with child.running("tests.bench.contender", folder) as process:
        child.await_exit(process, _TIMEOUT_S, "the contender")
    child.result(folder)


def extend_log(checkpoint: Path, epochs: int) -> int:
    """Write epochs without rows after those of a checkpoint until its log has this many.

    Returns:
        The number of the next epoch.
    """
    store = UnsyncedStore(checkpoint)
    log = StoredEpochLog(store)
    newest = log.newest()
    record = None if newest is None else log.read(newest)
    if record is None:
        raise RunFailed(f"the first run left no record in {checkpoint}")
    spark_logs = {name: store.read(f"{name}/{newest}") or b"" for name in ("offsets", "commits")}
    for empty in _empty_epochs(record, epochs):
        for name, content in spark_logs.items():
            store.put(f"{name}/{empty.epoch}", [content])
        log.create(empty)
        steps = (TimedStep("stage", float(empty.decided_at_ms), _STEP_MS),)
        write_report(store, EpochReport.of(DecidedEpoch(empty, replayed=False), steps))
    return epochs


def _empty_epochs(record: EpochRecord, end: int) -> Iterator[EpochRecord]:
    """Yield the records of the epochs after one up to an end, which have the same offsets and no rows."""
    for epoch in range(record.epoch + 1, end):
        attempt = hashlib.sha256(f"{record.attempt}/{epoch}".encode()).hexdigest()[:16]
        yield replace(
            record,
            epoch=epoch,
            attempt=attempt,
            prev=record.chain(),
            chunks=(),
            decided_at_ms=record.decided_at_ms + epoch,
        )
