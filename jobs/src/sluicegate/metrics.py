"""Metrics of a driver for Prometheus: its epochs, their steps, and what Spark reports of its query.

Names follow the conventions of Prometheus: a unit at the end, `_total` for counters, and times as Unix
times, so that an age is `time() - x`. docs/operations/metrics.md explains how to read them.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluicegate.oldest_input import OldestInput, Source
from sluicegate.protocol.record import DEAD_LETTERS, ROWS_IN, DecidedEpoch, EpochRecord

log = logging.getLogger("sluicegate.metrics")

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_SAMPLE_EVERY_S = 5.0
_MOST_KINDS, _OTHER_KIND = 20, "other"
"""A kind of dead letters is a word that a job writes, and each makes a series of its own."""


class Timings(Protocol):
    """What is known of an epoch when every sink has it, and of its plan before that.

    `steps` has ms by 'stage', 'decide' and 'apply SINK', `writer_steps` by sink and step of its
    writers; `planned_ms` is a Unix time; `lag` is in records.
    """

    steps: dict[str, float]
    started_ns: int

    @property
    def planned_ms(self) -> float:
        """See the class."""

    @property
    def sources(self) -> Sequence[Source]:
        """See the class."""

    @property
    def writer_steps(self) -> Mapping[tuple[str, str], float]:
        """See the class."""

    @property
    def lag(self) -> int:
        """See the class."""


class DriverMetrics:
    """The metrics of one query. All methods may be called from any thread.

    `oldest_input` is what the lag in seconds is measured from.

    Args:
        job: the label `job` of every metric.
        lineage: the id of the checkpoint's history.
        sinks: the ids of the sinks, whose rows are 0 until an epoch has some.
        restarts: the drivers that the supervisor has started after a failure, None without one.
    """

    def __init__(
        self,
        job: str = "",
        lineage: str = "",
        sinks: Iterable[str] = (),
        restarts: int | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        self._job = job
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._next_sample_s = 0.0
        self._sample_failed = False
        self._kinds: set[str] = set()
        self.oldest_input = OldestInput()
        self._epochs = _EpochCollector(job)
        self.registry.register(self._epochs)
        ProcessCollector(registry=self.registry)
        self._progress = self._gauge(
            "sluicegate_query_progress_timestamp_seconds",
            "Unix time at which the query last started, applied an epoch, or was idle",
        )
        self._lag = self._gauge(
            "sluicegate_source_lag_records",
            "Records in the Kafka sources after the newest applied epoch, when it was planned",
        )
        self._lag_seconds = self._gauge(
            "sluicegate_source_lag_seconds",
            "Time since the driver first saw the oldest input that some sink lacks; 0 without any",
        )
        self._event_time = self._gauge(
            "sluicegate_event_time_timestamp_seconds",
            "Newest event time that the query has read; only with a watermark",
        )
        self._seconds = self._histogram(
            "sluicegate_epoch_seconds", "Time from the start of an epoch until every sink had it"
        )
        self._step_seconds = self._histogram(
            "sluicegate_epoch_step_seconds",
            "Time of a step of an epoch: stage, decide, or apply with the sink",
            "step",
            "sink",
        )
        self._sink_step_seconds = self._histogram(
            "sluicegate_sink_step_seconds",
            "Time of a step in the sink's writers, in the part of the epoch where it took longest",
            "sink",
            "step",
        )
        self._rows_in = self._counter("sluicegate_rows_in_total", "Rows that the sources delivered")
        self._rows = self._counter(
            "sluicegate_sink_rows_total", "Rows of epochs that were applied to a sink", "sink"
        )
        self._tries = self._counter(
            "sluicegate_apply_tries_total",
            "Applies of an epoch to a sink that were begun; a second one of an epoch is a retry",
            "sink",
        )
        self._letters = self._counter(
            "sluicegate_dead_letters_total",
            "Dead letters by the first word of their reason",
            "kind",
        )
        self._staged = self._counter(
            "sluicegate_staged_bytes_total",
            "Bytes of staged rows of applied epochs by their sink, as stored",
            "sink",
        )
        self._offset_failures = self._counter(
            "sluicegate_source_offset_commit_failures_total",
            "Failed commits of source offsets to the consumer group, by the name of Kafka's error",
            "reason",
        )
        for sink in sinks:
            self._rows.labels(job, sink)
            self._tries.labels(job, sink)
            self._staged.labels(job, sink)
        self._add_metrics_of_start(lineage, restarts)
        self._add_gauges_of_spark()

    def _add_metrics_of_start(self, lineage: str, restarts: int | None) -> None:
        """Add what is known of the start of the driver and of its query."""
        self._info = self._gauge(
            "sluicegate_query_info", "1 for the query of the driver", "lineage"
        )
        self._start = self._gauge(
            "sluicegate_query_start_timestamp_seconds",
            "Unix time at which the query started, after the driver checked and recovered everything",
        )
        self._start_seconds = self._gauge(
            "sluicegate_start_seconds", "Time that a part of the driver's start took", "part"
        )
        self._restarts = self._counter(
            "sluicegate_driver_restarts_total",
            "Drivers that `sluicegate run` has started after a failure; absent without it",
        )
        if lineage:
            self._info.labels(self._job, lineage).set(1)
        if restarts is not None:
            self._restarts.labels(self._job).inc(restarts)

    def _add_gauges_of_spark(self) -> None:
        """Add the gauges that `sample` sets."""
        self._watermark = self._gauge(
            "sluicegate_watermark_timestamp_seconds",
            "Watermark of the query, according to Spark's last report",
        )
        self._state_rows = self._gauge(
            "sluicegate_state_rows",
            "Rows in the state, according to Spark's last report",
            "operator",
        )
        self._state_bytes = self._gauge(
            "sluicegate_state_memory_bytes",
            "Memory of the state stores, according to Spark's last report",
            "operator",
        )

    def serve(self, port: int) -> None:
        """Serve the metrics at a port of every IPv4 address; 0: not at all.

        A port that cannot be opened is logged and nothing else: a job without metrics is better than
        no job.
        """
        if not port:
            return
        try:
            self._server = start_http_server(port, registry=self.registry)
        except OSError as error:
            log.warning(
                "metrics cannot be served at port %d: %s\n"
                "  data: the job goes on, and only its metrics are missing\n"
                "  do: set metrics-port to a free port from 1024 on, and start the job again",
                port,
                error,
            )
            return
        log.info("metrics are served at port %d, path /metrics", port)

    def start_took(self, seconds: Mapping[str, float]) -> None:
        """Record how long parts of the start took, by their names."""
        for part, took_s in seconds.items():
            self._start_seconds.labels(self._job, part).set(took_s)

    def query_started(self) -> None:
        """Record that the query has started."""
        self._start.labels(self._job).set_to_current_time()
        self._progress.labels(self._job).set_to_current_time()

    def planned(self, epoch: int, timings: Timings) -> None:
        """Record that an epoch is planned: its input waits until every sink has it."""
        self.oldest_input.planned(epoch, timings.planned_ms / 1000, timings.sources)
        self._lag_seconds.labels(self._job).set_function(self.oldest_input.age_s)

    def decided(self, record: EpochRecord) -> None:
        """Record that an epoch is decided: it is in doubt until `applied`. May be repeated."""
        self._epochs.decided(record.epoch, record.decided_at_ms / 1000)

    def apply_tried(self, sink: str) -> None:
        """Record that an apply of an epoch to a sink begins."""
        self._tries.labels(self._job, sink).inc()

    def applied(self, decided: DecidedEpoch, timings: Timings) -> None:
        """Record that every sink has an epoch."""
        record, job = decided.record, self._job
        self.oldest_input.applied(record.epoch, timings.sources)
        self._epochs.applied(record.epoch, time.time())
        self._progress.labels(job).set_to_current_time()
        for name, ms in timings.steps.items():
            step, _, sink = name.partition(" ")
            self._step_seconds.labels(job, step, sink).observe(ms / 1000)
        for (sink, step), ms in timings.writer_steps.items():
            self._sink_step_seconds.labels(job, sink, step).observe(ms / 1000)
        if not decided.replayed:  # otherwise an earlier attempt did a part of it
            self._seconds.labels(job).observe((time.time_ns() - timings.started_ns) / 1e9)
            self._lag.labels(job).set(timings.lag)
        for sink in record.sinks:
            self._rows.labels(job, sink).inc(record.rows(sink))
        self._rows_in.labels(job).inc(max(0, record.counts.get(ROWS_IN, 0)))
        for chunk in record.chunks:
            self._staged.labels(job, chunk.sink).inc(chunk.size)
        for name, number in record.counts.items():
            if name.startswith(DEAD_LETTERS):
                self._letters.labels(job, self._kind(name.removeprefix(DEAD_LETTERS))).inc(number)
        newest_ms = max((one.max_ms for one in record.event_times if one.count), default=None)
        if newest_ms is not None:
            self._event_time.labels(job).set(newest_ms / 1000)

    def source_offsets_failed(self, reason: str) -> None:
        """Record that source offsets could not be committed; only tools that show lag use them."""
        self._offset_failures.labels(self._job, reason).inc()

    def sample(self, read: Callable[[], tuple[bool, Mapping[str, Any] | None]]) -> None:
        """Export what Spark reports of the query, at most every five seconds while it is served.

        Args:
            read: returns whether the query is idle, and its last StreamingQueryProgress.
        """
        if self._server is None or time.monotonic() < self._next_sample_s:
            return
        self._next_sample_s = time.monotonic() + _SAMPLE_EVERY_S
        try:
            idle, progress = read()
            self._export(progress or {})
        except Exception as error:  # noqa: BLE001 - no failure here may end the driver
            if not self._sample_failed:
                self._sample_failed = True
                log.warning(
                    "Spark's report of the query cannot be exported (%s): %s\n"
                    "  data: the job goes on; metrics of its state and watermark are missing\n"
                    "  do: nothing, if it happened while the query ended",
                    type(error).__name__,
                    error,
                )
            return
        if idle:
            self._lag_seconds.labels(self._job).set_function(self.oldest_input.age_s)
            self._progress.labels(self._job).set_to_current_time()

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            (server, thread), self._server = self._server, None
            server.shutdown()
            server.server_close()
            thread.join()

    def _export(self, progress: Mapping[str, Any]) -> None:
        rows: dict[str, int] = {}
        memory: dict[str, int] = {}
        for operator in progress.get("stateOperators", ()):
            name = operator["operatorName"]
            rows[name] = rows.get(name, 0) + operator["numRowsTotal"]
            memory[name] = memory.get(name, 0) + operator["memoryUsedBytes"]
        for name, number in rows.items():
            self._state_rows.labels(self._job, name).set(number)
            self._state_bytes.labels(self._job, name).set(memory[name])
        watermark = progress.get("eventTime", {}).get("watermark")
        if watermark is not None:
            seconds = dt.datetime.fromisoformat(watermark).timestamp()
            if seconds > 0:  # Spark's watermark before the first rows is 1970
                self._watermark.labels(self._job).set(seconds)

    def _kind(self, kind: str) -> str:
        if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            return _OTHER_KIND
        self._kinds.add(kind)
        return kind

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, ["job", *labels], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, ["job", *labels], registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, ["job", *labels], buckets=_BUCKETS, registry=self.registry)


@dataclass(frozen=True)
class _Newest:
    """The newest epochs of a driver, with Unix times in seconds; None: there was none yet."""

    decided: int | None = None
    decided_s: float = 0.0
    applied: int | None = None
    applied_s: float = 0.0

    @property
    def in_doubt(self) -> bool:
        """Whether an epoch is decided that a sink may lack."""
        return self.decided is not None and (self.applied is None or self.applied < self.decided)


class _EpochCollector(Collector):
    """The newest epochs, consistent with each other in every scrape."""

    def __init__(self, job: str) -> None:
        self._job, self._lock, self._newest = job, threading.Lock(), _Newest()

    def decided(self, epoch: int, at_s: float) -> None:
        with self._lock:
            if self._newest.decided is None or epoch > self._newest.decided:
                self._newest = replace(self._newest, decided=epoch, decided_s=at_s)

    def applied(self, epoch: int, at_s: float) -> None:
        with self._lock:
            decided = max(epoch, self._newest.decided or 0)
            self._newest = replace(self._newest, decided=decided, applied=epoch, applied_s=at_s)

    def collect(self) -> Iterable[Metric]:
        newest = self._newest
        decided, applied = newest.decided is not None, newest.applied is not None
        return [
            self._gauge(
                "sluicegate_epoch_decided",
                "Number of the newest epoch that this driver knows to be decided",
                newest.decided if decided else None,
            ),
            self._gauge(
                "sluicegate_epoch_applied",
                "Number of the newest epoch that this driver has brought into every sink",
                newest.applied if applied else None,
            ),
            self._gauge(
                "sluicegate_epoch_applied_timestamp_seconds",
                "Unix time at which every sink had that epoch",
                newest.applied_s if applied else None,
            ),
            self._gauge(
                "sluicegate_epoch_in_doubt_timestamp_seconds",
                "Unix time of the decision of the epoch that a sink may lack; absent without one",
                newest.decided_s if newest.in_doubt else None,
            ),
        ]

    def _gauge(self, name: str, text: str, value: float | None) -> Metric:
        gauge = GaugeMetricFamily(name, text, labels=["job"])
        if value is not None:
            gauge.add_metric([self._job], value)
        return gauge
