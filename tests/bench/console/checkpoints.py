"""Checkpoints of many jobs, written by the library's own code.

Each has 100 epochs with records and reports, as many entries in Spark's logs, and the settings of some
drivers. Nothing is synced to the disk. Spark's logs, which do not name the job, are hard links, and so
are the records of old epochs, which a page reads only if somebody opens that epoch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from sluicegate.protocol.record import Chunk, DecidedEpoch, EpochRecord, SinkBinding
from sluicegate.settings.epoch import EXACTLY_ONCE
from sluicegate.storage.driver_start import FOLDER, DriverStart
from sluicegate.storage.epoch_log import DEFAULT_RETAINED, StoredEpochLog
from sluicegate.storage.epoch_report import EpochReport, TimedStep, write_report
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import LocalObjectStore

KAFKA, MYSQL = "kafka.orders", "mysql.orders"
EPOCHS = DEFAULT_RETAINED
INTERVAL_MS = 10_000

_OWN = 40
"""The number of newest epochs that a job's page reads."""
_PARTS = 2
_ROWS = 200
_CHUNK = bytes(1000)
_CHUNK_DIGEST = hashlib.sha256(_CHUNK).hexdigest()
_STARTS = 3
_SETTINGS = 40
"""How many settings a driver records, about as many as real ones do."""
_TENANTS = 10


class UnsyncedStore(LocalObjectStore):
    """A folder whose files are written at once and not synced: a fleet is written in a minute."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._path = root

    def create(self, name: str, content: bytes) -> bool:
        """Write a file, which must not exist."""
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
        return True

    def put(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file, atomically."""
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}")
        scratch.write_bytes(b"".join(content))
        scratch.replace(path)


def name_of(job: int) -> str:
    """Return the folder of a job below that of the fleet: a tenth of the jobs is of one tenant."""
    return f"tenant-{job % _TENANTS}/job-{job:04d}"


def write_fleet(root: Path, jobs: int, now_ms: int, *, epochs: int = EPOCHS) -> None:
    """Write checkpoints whose last epochs were decided shortly before a time in ms since 1970.

    Every hundredth job has an epoch in doubt.
    """
    for job in range(jobs):
        folder = root / name_of(job)
        store = UnsyncedStore(folder)
        lineage = Lineage(f"{job:016x}", f"orders-{job:04d}")
        create_lineage(store, lineage)
        for epoch in range(epochs):
            at_ms = now_ms - (epochs - epoch) * INTERVAL_MS
            if job and epoch < epochs - _OWN:
                for name in (f"epochs/{epoch}", f"epochs/{epoch}.report"):
                    _link(root / name_of(0) / name, folder / name)
                continue
            in_doubt = job % 100 == 0 and epoch == epochs - 1
            write_epoch(store, lineage, epoch, at_ms, applied=not in_doubt)
        _link_spark_logs(root / ".spark", folder, epochs, now_ms)
        for start in range(_STARTS):
            started_at_ms = now_ms - (_STARTS - start) * 3_600_000
            store.put(f"{FOLDER}{started_at_ms:015d}", [_start(started_at_ms)])


def write_epoch(
    store: LocalObjectStore, lineage: Lineage, epoch: int, at_ms: int, *, applied: bool = True
) -> None:
    """Write the record of an epoch, and the report of its apply if every sink has it."""
    record = _record(lineage, epoch, at_ms)
    StoredEpochLog(store).create(record)
    if applied:
        report = EpochReport.of(DecidedEpoch(record, replayed=False), _steps(at_ms))
        write_report(store, report)


def write_spark_logs(store: LocalObjectStore, epoch: int, at_ms: int) -> None:
    """Write Spark's offsets and commit of an epoch."""
    store.put(f"offsets/{epoch}", [_offsets(epoch, at_ms)])
    store.put(f"commits/{epoch}", [b'v1\n{"nextBatchWatermarkMs":0}'])


def _link_spark_logs(shared: Path, folder: Path, epochs: int, now_ms: int) -> None:
    for epoch in range(epochs):
        at_ms = now_ms - (epochs - epoch) * INTERVAL_MS - 500
        if not (shared / f"commits/{epoch}").exists():
            write_spark_logs(UnsyncedStore(shared), epoch, at_ms)
        for name in (f"offsets/{epoch}", f"commits/{epoch}"):
            _link(shared / name, folder / name)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(source, target)


def _record(lineage: Lineage, epoch: int, at_ms: int) -> EpochRecord:
    digest = hashlib.sha256(str(epoch).encode()).hexdigest()
    return EpochRecord(
        lineage=lineage.id,
        job=lineage.job,
        epoch=epoch,
        attempt=digest[:16],
        delivery=EXACTLY_ONCE,
        offsets_digest=digest,
        sinks={
            KAFKA: SinkBinding("kafka", f"topic {lineage.job}", _PARTS, f"{lineage.id}/{KAFKA}"),
            MYSQL: SinkBinding(
                "mysql", f"table shop.{lineage.job}", _PARTS, f"{lineage.id}/{MYSQL}"
            ),
        },
        prev={},
        chunks=tuple(
            Chunk(sink, part, (part, 0), _ROWS, len(_CHUNK), _CHUNK_DIGEST, inline=_CHUNK)
            for sink in (KAFKA, MYSQL)
            for part in range(_PARTS)
        ),
        decided_at_ms=at_ms,
        counts={"rows_in": 2 * _ROWS + 1, "refused": 1, "dead_letters_null": 1},
    )


def _steps(at_ms: int) -> tuple[TimedStep, ...]:
    """Return the steps of an epoch that was decided at a time, as a driver times them."""
    steps = [
        TimedStep("stage", at_ms - 612.5, 600.25),
        TimedStep("decide", at_ms - 12.25, 12.25),
    ]
    at = float(at_ms)
    for sink in (KAFKA, MYSQL):
        for part in range(_PARTS):
            for step, ms in (("begin", 3.125), ("write", 61.5), ("flush", 44.75), ("commit", 9.5)):
                steps.append(TimedStep(step, at, ms, sink, part))
                at += ms
        steps.append(TimedStep("apply", at - 237.75, 237.75, sink))
    return tuple(steps)


def _offsets(epoch: int, at_ms: int) -> bytes:
    """Return Spark's `offsets/N` of a stream from Kafka."""
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": at_ms, "conf": {}}
    ends = {"orders": {str(partition): 1000 * (epoch + 1) for partition in range(4)}}
    return f"v1\n{json.dumps(metadata)}\n{json.dumps(ends)}".encode()


def _start(started_at_ms: int) -> bytes:
    settings = {f"spark.sql.streaming.setting{n:02d}": str(n) for n in range(_SETTINGS)}
    start = DriverStart(started_at_ms, {"interval": "10 seconds", **settings})
    return json.dumps(asdict(start)).encode()
