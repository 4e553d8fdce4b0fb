"""One throughput run with new sinks, checkpoint and process; reads the sinks back afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.toolchain import maven
from tests.bench import child, profiling, sinks, usage
from tests.bench.child import RunFailed
from tests.bench.epochs import Epoch, irregular, read_epochs, steady_rate
from tests.bench.figures import Run, percentile
from tests.bench.flink import job as flink
from tests.bench.flink import program as flink_program
from tests.bench.kafka_streams import job as kafka_streams
from tests.bench.order import Order
from tests.bench.phases import phase_times, repeated
from tests.bench.plan import (
    KAFKA_STREAMS,
    OTHER_ENGINES,
    SPARK_JDBC,
    Workload,
)
from tests.bench.profiling import Profilers
from tests.bench.readback import Content
from tests.bench.sinks import Servers

_TIMEOUT_S = 900.0
_LEAST_RECORDS_S = 2000.0
"""A slower run is given up."""


@dataclass(frozen=True)
class Source:
    """A filled topic and the expected content of every sink."""

    topic: str
    expected: Content


@dataclass(frozen=True)
class Turn:
    """Identifies a run."""

    workload: Workload
    contender: str
    round_: int
    profilers: Profilers | None = None
    """None: the run is not profiled."""
    checkpoints: str = ""
    """An address for the checkpoints of all runs; empty: each is in the folder of its run."""

    @property
    def name(self) -> str:
        """The name used for folders, topics and tables."""
        return f"{self.workload.name}-{self.contender}-{self.round_}".replace("_", "-")

    @property
    def profile(self) -> str:
        """The name of its stacks."""
        return f"{self.workload.name}.{self.contender}"


def run(turn: Turn, source: Source, services: Servers, base: Path) -> Run:
    """Run a contender once; report any error as the run's anomaly."""
    folder = base / turn.name
    folder.mkdir(parents=True)
    order = _order(turn, source, services)
    order.write(folder)
    sinks.create(order, services, turn.workload.partitions)
    if turn.contender == SPARK_JDBC:
        maven.fetch("jdbc")
    measured = _engine_measured if turn.contender in OTHER_ENGINES else _measured
    try:
        return measured(turn, order, source.expected, services, folder)
    except (RunFailed, TimeoutError) as error:
        return Run(turn.workload.name, turn.contender, turn.round_, anomaly=str(error))
    finally:
        sinks.drop(order, services)


def _order(turn: Turn, source: Source, services: Servers) -> Order:
    stem = f"{source.topic}-{turn.contender}-{turn.round_}"
    return Order(
        kind=turn.workload.kind,
        contender=turn.contender,
        bootstrap=services.kafka.bootstrap,
        source=source.topic,
        sink=f"{stem}-sink",
        dead_letters=f"{stem}-dead-letters",
        table=stem.replace("-", "_")[-50:],
        epoch_records=turn.workload.epoch_records,
        trigger=turn.workload.trigger,
        apply_wait_s=turn.workload.apply_wait_s,
        cores=turn.workload.cores,
        executors=turn.workload.executors,
        checkpoint=turn.checkpoints and f"{turn.checkpoints}/{stem}",
        records=turn.workload.records,
    )


def _measured(turn: Turn, order: Order, expected: Content, services: Servers, folder: Path) -> Run:
    start = time.monotonic()
    mysql = services.mysql if turn.workload.kind in sinks.COLUMNS else None
    warm_up = turn.workload.warm_up_epochs
    with (
        child.running("tests.bench.contender", folder, mysql) as process,
        usage.sampling(process.pid) as used,
        profiling.profiling(turn.profilers, turn.profile, process.pid, folder),
    ):
        child.await_exit(process, _timeout_s(turn.workload), "the contender")
    whole_s = time.monotonic() - start
    epochs = read_epochs(child.result(folder)["progress"])
    spans = list(child.spans(folder))
    rate = steady_rate(epochs, warm_up)
    wrong, appends = sinks.read_back(order, expected, services.mysql)
    for problem in (
        irregular(epochs, turn.workload.records),
        repeated(spans),
        "" if rate else f"{len(epochs)} epochs are too few to measure",
        wrong,
    ):
        if problem:
            raise RunFailed(problem)
    return Run(
        turn.workload.name,
        turn.contender,
        turn.round_,
        figures={
            "records_s": rate or 0.0,
            "whole_s": whole_s,
            **_figures(epochs, used, warm_up),
            **append_figures(appends),
        },
        phases=phase_times(spans, epochs, warm_up),
        detail={"epochs": [asdict(epoch) for epoch in epochs]},
    )


def _timeout_s(workload: Workload) -> float:
    return max(_TIMEOUT_S, workload.records / _LEAST_RECORDS_S)


def _figures(epochs: Sequence[Epoch], used: usage.Usage, warm_up: int) -> dict[str, float]:
    measured = epochs[warm_up:]
    durations_ms = [epoch.took_ms for epoch in measured]
    records = sum(epoch.records for epoch in measured)
    return {
        "epoch_p50_ms": percentile(durations_ms, 50),
        "epoch_p99_ms": percentile(durations_ms, 99),
        **used.figures(epochs[warm_up - 1].end_ms, measured[-1].end_ms, records),
    }


def _engine_measured(
    turn: Turn, order: Order, expected: Content, services: Servers, folder: Path
) -> Run:
    command = _engine_command(order, folder)
    start = time.monotonic()
    with (
        child.running_command(command, folder / child.LOG) as process,
        usage.sampling(process.pid) as used,
        profiling.profiling(turn.profilers, turn.profile, process.pid, folder),
    ):
        child.await_exit(process, _timeout_s(turn.workload), turn.contender)
    whole_s = time.monotonic() - start
    if process.returncode != 0:
        raise RunFailed(
            f"{turn.contender} ended with exit code {process.returncode}: {child.last_words(folder)}"
        )
    wrong, appends = sinks.read_back(order, expected, services.mysql)
    if wrong:
        raise RunFailed(wrong)
    figures = {
        "whole_s": whole_s,
        **append_figures(appends),
        **used.figures(*_between(appends, 0.1, 0.9)),
    }
    return Run(turn.workload.name, turn.contender, turn.round_, figures=figures)


def _engine_command(order: Order, folder: Path) -> list[str]:
    """Install another engine and return the command line of its run."""
    if order.contender == KAFKA_STREAMS:
        return kafka_streams.command(kafka_streams.install(), order, folder)
    return flink.command(flink_program.install(), order, folder)


def _between(appends: Sequence[int], begin: float, end: float) -> tuple[int, int, int]:
    """Return when a range of the records begins and ends, in milliseconds, and their number."""
    first, last = int(len(appends) * begin), int(len(appends) * end)
    return appends[first], appends[last], last - first


def append_figures(appends: Sequence[int]) -> dict[str, float]:
    """Return the rates at which the brokers appended the middle 80 % and the last 40 % before 90 %.

    They need nothing from the contender, so they compare those that are not on Spark. In the second one
    the JVMs have compiled what they run: a stream runs for weeks, a benchmark for seconds. A rate whose
    records were all appended in one millisecond is left out.

    Args:
        appends: when each record was appended, in milliseconds since 1970, ascending.
    """
    figures = {}
    for name, begin in (("append_records_s", 0.1), ("warm_records_s", 0.5)) if appends else ():
        begin_ms, end_ms, records = _between(appends, begin, 0.9)
        if end_ms > begin_ms:
            figures[name] = records * 1000 / (end_ms - begin_ms)
    return figures
