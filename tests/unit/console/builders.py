"""Facts and reports for the pure parts of the console."""

from __future__ import annotations

from collections.abc import Mapping

from sluicegate.console.model import Epoch, JobFacts
from sluicegate.protocol.record import SinkBinding
from sluicegate.storage.epoch_report import EpochReport, SinkReport, TimedStep
from sluicegate.storage.lineage import Lineage

KAFKA, MYSQL = "kafka.t", "mysql.t"
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def epoch(
    number: int,
    *,
    at_ms: int = NOW_MS,
    overlapped: bool = False,
    counts: Mapping[str, int] | None = None,
    report: EpochReport | None = None,
) -> Epoch:
    """Return a decided epoch with ten rows for Kafka and none for MySQL."""
    return Epoch(
        number=number,
        attempt=f"a{number}",
        decided_at_ms=at_ms,
        delivery="exactly-once",
        overlapped=overlapped,
        sinks={sink: SinkBinding(sink[:5], "t", 1, sink) for sink in (KAFKA, MYSQL)},
        rows={KAFKA: 10, MYSQL: 0},
        chunks=1,
        bytes=100,
        counts=counts or {},
        offsets_digest="d",
        traceparent="",
        report=report,
    )


def job(*epochs: Epoch, planned: int | None = None, committed: int = -1) -> JobFacts:
    """Return a job whose epochs up to `committed` are committed by Spark."""
    return JobFacts(
        key="shop/orders",
        address="checkpoints/shop/orders",
        lineage=Lineage("l", "orders"),
        epochs=epochs,
        numbers=tuple(epoch.number for epoch in epochs),
        planned=planned,
        planned_at_ms=0 if planned is None else NOW_MS - HOUR_MS,
        committed=frozenset(range(committed + 1)),
    )


def report(
    number: int,
    *steps: tuple[str, str, int | None, float],
    start_ms: float = 0.0,
    tries: int = 1,
) -> EpochReport:
    """Return a report whose steps (name, sink, part, ms) follow each other, parts inside their sink's."""
    timed, at = [], start_ms
    for name, sink, part, ms in steps:
        timed.append(TimedStep(name, at, ms, sink, part))
        at += ms if part is None else 0.0
    sinks = {KAFKA: SinkReport(10, tries), MYSQL: SinkReport(10, tries)}
    return EpochReport(number, "l", f"a{number}", replayed=False, sinks=sinks, steps=tuple(timed))
