"""Renders the results as text tables and as JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.about import About
from tests.bench.console import report as console_report
from tests.bench.console.rounds import VIEWERS
from tests.bench.figures import Run, Spread, anomalies, percentile, pooled, ratios, shown, spread
from tests.bench.growth import START, Start
from tests.bench.machine import Machine
from tests.bench.operator import report
from tests.bench.plan import (
    COMPRESSION,
    IP_COUNT,
    LATENCY_VALUE_BYTES,
    MEASURED,
    MYSQL_LATENCY,
    ORDERS,
    OTHER_ENGINES,
    RECOVERY,
    RECOVERY_CONTENDERS,
    RIVALS,
    SERIAL,
    SLUICEGATE,
    SPARK,
    Pace,
    Workload,
)

_NONE = Spread(0, 0, 0, 0)


@dataclass
class Results:
    """The results of all runs."""

    rounds: int
    seed: int
    workloads: Sequence[Workload]
    paces: Sequence[Pace]
    starts: Sequence[Start] = ()
    about: About | None = None
    runs: list[Run] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    kills: int = 0
    """Kills in each round of a contender of the recoveries; 0 skips them."""
    jobs: int = 0
    """StreamingJobs of the operator benchmark; 0 skips it."""
    operator: list[dict[str, float]] = field(default_factory=list)
    """Figures of each round of the operator benchmark."""
    console_jobs: int = 0
    """Jobs of the console benchmark; 0 skips it."""
    console: list[dict[str, dict[str, float]]] = field(default_factory=list)
    """Figures of each round of the console benchmark, by store."""


def write_json(results: Results, path: Path) -> None:
    """Write all results to a file."""
    path.write_text(json.dumps(as_json(results), indent=1), encoding="utf-8")


def as_json(results: Results) -> dict[str, Any]:
    """Return all results as they are in the file."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(results)))
    return found


def text(results: Results) -> str:
    """Return the tables."""
    return "\n".join(_lines(results))


def _lines(results: Results) -> Iterator[str]:
    for workload in results.workloads:
        yield from _throughput(results, workload)
    if results.starts:
        yield from _starts(results)
    if results.kills:
        yield from _recoveries(results)
    for pace in results.paces:
        yield from _latency(results, pace)
    if results.jobs:
        yield from report.lines(results.operator, results.jobs)
    if results.console_jobs:
        yield from console_report.lines(results.console, results.console_jobs, VIEWERS)
    yield ""
    anomalous = anomalies(results.runs)
    if results.runs:
        yield f"{len(results.runs)} runs, {len(anomalous)} with an anomaly (excluded from all figures above)"
    for run in anomalous:
        yield f"  round {run.round_} {run.workload} {run.contender}: {run.anomaly}"
    warnings = [(i, m.warning()) for i, m in enumerate(results.machines, 1) if m.warning()]
    for round_, warning in warnings:
        yield f"  before round {round_}: {warning}"


def describe(workload: Workload) -> str:
    """Return a line about the input of a workload, and about what is not measured."""
    keys = f", {workload.keys:,} keys" if workload.keys else ""
    return (
        f"{workload.records:,} {workload.unit}{keys}, epochs of {workload.epoch_records:,}, "
        f"{workload.partitions} partitions, {_parallelism(workload)}, {COMPRESSION}, "
        f"without the first {workload.warm_up_epochs} epochs"
    )


def _parallelism(workload: Workload) -> str:
    cores = "1 core" if workload.cores == 1 else f"{workload.cores} cores"
    return f"{workload.executors} executors of {cores}" if workload.executors else cores


def _throughput(results: Results, workload: Workload) -> Iterator[str]:
    yield ""
    yield f"{workload.name}: {describe(workload)}"
    if workload.note:
        yield f"  ({workload.note}.)"
    yield (
        f"  {'':<24}{'records/s median (min - max)':>34}{'epoch p50 ms':>14}{'p99 ms':>8}"
        f"{'CPU us/record':>15}{'memory MiB':>12}{'whole run s':>13}{'appended/s':>14}{'2nd half':>12}"
        f"{'sound':>8}"
    )
    for contender in workload.contenders:
        spreads = {
            name: spread(results.runs, workload.name, contender, name)
            for name in (
                "records_s",
                "append_records_s",
                "warm_records_s",
                "epoch_p50_ms",
                "epoch_p99_ms",
                "cpu_us",
                "memory_mib",
                "whole_s",
            )
        }
        rate, appended = spreads["records_s"], spreads["append_records_s"]
        rate_text = "has no epochs" if contender in OTHER_ENGINES else _rate(rate)
        yield (
            f"  {contender:<24}{rate_text:>34}{_median(spreads['epoch_p50_ms']):>14}"
            f"{_median(spreads['epoch_p99_ms']):>8}{_median(spreads['cpu_us'], 2):>15}"
            f"{_median(spreads['memory_mib']):>12}{_median(spreads['whole_s'], 1):>13}"
            f"{_median(appended):>14}{_median(spreads['warm_records_s']):>12}"
            f"{(rate or appended or _NONE).count:>5}/{results.rounds}"
        )
    own_contenders = [name for name in workload.contenders if name in MEASURED]
    rivals = [name for name in workload.contenders if name in RIVALS]
    pairs = list(itertools.product(own_contenders, rivals))
    if {SLUICEGATE, SERIAL} <= set(own_contenders):
        pairs.append((SLUICEGATE, SERIAL))
    yield from _ratios(results, workload.name, "records_s", pairs, "records/s, more is better")
    yield from _ratios(results, workload.name, "cpu_us", pairs, "CPU, less is better")
    engines = [name for name in workload.contenders if name in OTHER_ENGINES]
    if engines:
        pairs = [*itertools.product(own_contenders, engines), *pairs]
        meaning = "records/s appended by the brokers, the middle 80 %, more is better"
        yield from _ratios(results, workload.name, "append_records_s", pairs, meaning)
        meaning = "the same, the second half without the last 10 %"
        yield from _ratios(results, workload.name, "warm_records_s", pairs, meaning)
    for contender in own_contenders:
        yield from _phases(results.runs, workload.name, contender)


def _starts(results: Results) -> Iterator[str]:
    yield ""
    yield f"{START}: from the start of the driver's process, by epochs in the log"
    yield f"  {'epochs':<24}{'query started, s':>30}{'first epoch in the sink, s':>30}{'sound':>8}"
    for start in results.starts:
        query, first = (
            spread(results.runs, start.name, SLUICEGATE, name)
            for name in ("query_s", "first_epoch_s")
        )
        sound = f"{first.count if first else 0}/{results.rounds}"
        yield f"  {start.epochs:<24,}{shown(query, 1):>30}{shown(first, 1):>30}{sound:>8}"


def _recoveries(results: Results) -> Iterator[str]:
    yield ""
    yield f"{RECOVERY}: kill -9 of the driver -> the next epoch in every sink, {results.kills} kills a round"
    yield f"  {'':<24}{'p50 s, median (min - max)':>30}{'slowest s':>30}{'sound':>8}"
    for contender in RECOVERY_CONTENDERS:
        p50, slowest = (
            spread(results.runs, RECOVERY, contender, name)
            for name in ("recovery_p50_s", "recovery_max_s")
        )
        sound = f"{p50.count if p50 else 0}/{results.rounds}"
        yield f"  {contender:<24}{shown(p50, 1):>30}{shown(slowest, 1):>30}{sound:>8}"


def seen_by(pace: Pace) -> str:
    """Return what ends a latency."""
    return "visible in MySQL" if pace.kind == MYSQL_LATENCY else "seen by a read_committed reader"


def _latency(results: Results, pace: Pace) -> Iterator[str]:
    yield ""
    yield (
        f"{pace.name}: due -> {seen_by(pace)}; {pace.records_s:,} records/s of "
        f"{LATENCY_VALUE_BYTES} B for {pace.seconds:.0f} s"
    )
    yield (
        f"  {'':<24}{'p50 ms median (min - max)':>30}{'p99 ms median (min - max)':>30}{'cores':>8}"
        f"{'sender':>8}{'reader':>8}{'sender behind ms':>18}{'sound':>8}"
    )
    for contender in pace.contenders:
        p50, p99, cores, sender, reader, behind = (
            spread(results.runs, pace.name, contender, name)
            for name in (
                "p50_ms",
                "p99_ms",
                "cores",
                "sender_cores",
                "reader_cores",
                "sender_behind_ms",
            )
        )
        sound = f"{p50.count if p50 else 0}/{results.rounds}"
        yield (
            f"  {contender:<24}{_rate(p50):>30}{_rate(p99):>30}{_median(cores, 2):>8}"
            f"{_median(sender, 2):>8}{_median(reader, 2):>8}{_median(behind):>18}{sound:>8}"
        )
    rivals = [name for name in pace.contenders if name not in MEASURED]
    pairs = [*itertools.product((SLUICEGATE, SERIAL), rivals)]
    yield from _ratios(results, pace.name, "p50_ms", pairs, "p50, less is better")
    yield from _ratios(results, pace.name, "p99_ms", pairs, "p99, less is better")
    yield from _phases(results.runs, pace.name, SLUICEGATE)


def _ratios(
    results: Results, workload: str, figure: str, pairs: Sequence[tuple[str, str]], meaning: str
) -> Iterator[str]:
    if pairs:
        yield f"  ratios, pair by pair in the same round ({meaning}):"
    for contender, rival in pairs:
        values = ratios(results.runs, workload, figure, contender, rival)
        alone = rival in (SPARK, *OTHER_ENGINES) and workload in (IP_COUNT, ORDERS)
        kafka_only = " (Kafka only)" if alone else ""
        label = f"{contender} / {rival}{kafka_only}"
        if values is None:
            yield f"    {label:<56} no sound pair"
        else:
            yield (
                f"    {label:<56} min {values.low:.2f}  median {values.median:.2f}  "
                f"max {values.high:.2f}  ({values.count} pairs)"
            )


def _phases(runs: Sequence[Run], workload: str, contender: str) -> Iterator[str]:
    times_by_phase = pooled(runs, workload, contender)
    if not times_by_phase:
        return
    yield f"  phases of {contender}:"
    for phase, times in times_by_phase.items():
        indent = "      " if ": " in phase else "    "
        name = phase.partition(": ")[2] or phase
        yield (
            f"  {indent + name:<52}p50 {percentile(times, 50):>8.1f} ms   "
            f"p99 {percentile(times, 99):>8.1f} ms   ({len(times)})"
        )


def _rate(values: Spread | None) -> str:
    if values is None:
        return "no number"
    return f"{values.median:,.0f} ({values.low:,.0f} - {values.high:,.0f})"


def _median(values: Spread | None, digits: int = 0) -> str:
    return "-" if values is None else f"{values.median:,.{digits}f}"
