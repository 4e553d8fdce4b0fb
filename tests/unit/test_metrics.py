"""The metrics of a driver, scraped over HTTP."""

from __future__ import annotations

import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sluicegate.metrics import DriverMetrics
from sluicegate.protocol.record import Chunk, DecidedEpoch, EpochRecord, EventTime, SinkBinding
from sluicegate.spark.ports import EpochTimings
from sluicegate.spark.query_execution import KafkaSource
from sluicegate.storage.epoch_report import TimedStep

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

RECORD = EpochRecord(
    lineage="l",
    job="j",
    epoch=7,
    attempt="a",
    delivery="exactly-once",
    offsets_digest="",
    sinks={"a": SinkBinding("memory", "a", 1, "a"), "b": SinkBinding("memory", "b", 1, "b")},
    prev={},
    chunks=(Chunk("a", 0, (0, 0), 3, 100, ""), Chunk("a", 0, (1, 0), 2, 20, "")),
    event_times=(EventTime(0, 0, 0.0, 0), EventTime(1_700_000_000_500, 1, 1.0, 5)),
    decided_at_ms=1_700_000_001_000,
    counts={"rows_in": 6, "refused": 1, "dead_letters_late": 1},
)

PROGRESS: dict[str, Any] = {
    "id": "5a2e1d3c-1f4b-4c55-9d55-0d9f0b5c7a01",
    "runId": "5a2e1d3c-1f4b-4c55-9d55-0d9f0b5c7a02",
    "name": "clicks",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchId": 7,
    "batchDuration": 20,
    "numInputRows": 6,
    "inputRowsPerSecond": 1.0,
    "processedRowsPerSecond": 1.0,
    "durationMs": {"triggerExecution": 20},
    "eventTime": {"watermark": "2023-11-14T22:13:20.250Z"},
    "stateOperators": [
        {
            "operatorName": "stateStoreSave",
            "numRowsTotal": rows,
            "numRowsUpdated": 1,
            "numRowsRemoved": 0,
            "allUpdatesTimeMs": 1,
            "allRemovalsTimeMs": 0,
            "commitTimeMs": 1,
            "memoryUsedBytes": 1000,
            "numRowsDroppedByWatermark": 0,
            "numShufflePartitions": 1,
            "numStateStoreInstances": 1,
            "customMetrics": {},
        }
        for rows in (40, 2)
    ],
    "sources": [],
    "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
    "observedMetrics": {},
}
"""What `StreamingQueryProgress.json` of Spark 4.1 says of a query with two aggregations."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(metrics: DriverMetrics) -> Iterator[int]:
    port = free_port()
    metrics.serve(port)
    try:
        yield port
    finally:
        metrics.close()


def scrape(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        return parsed(reply.read().decode())


def read(metrics: DriverMetrics) -> Samples:
    return parsed(generate_latest(metrics.registry).decode())


def parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def one(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return f"sluicegate_{name}", tuple(sorted({"job": "clicks", **labels}.items()))


def timings(**steps: float) -> EpochTimings:
    """Return the times of an epoch that leaves nine records of two topics."""
    sources = (
        KafkaSource(1, None, {"t": {"0": 1}}, {"t": {"0": 5}}),
        KafkaSource(2, None, {"u": {"0": 3}}, {"u": {"0": 8}}),
    )
    return EpochTimings({step.replace("_", " "): ms for step, ms in steps.items()}, sources=sources)


def test_an_applied_epoch_is_in_the_next_scrape() -> None:
    metrics = DriverMetrics("clicks", "l", ["a", "b"])
    with served(metrics) as port:
        metrics.query_started()
        metrics.decided(RECORD)
        metrics.applied(DecidedEpoch(RECORD, replayed=False), timings(stage=30, apply_a=200))
        found = scrape(port)
    assert found[one("query_info", lineage="l")] == 1
    assert (found[one("epoch_decided")], found[one("epoch_applied")]) == (7, 7)
    assert found[one("rows_in_total")] == 6
    assert (found[one("sink_rows_total", sink="a")], found[one("sink_rows_total", sink="b")]) == (
        5,
        0,
    )
    assert found[one("dead_letters_total", kind="late")] == 1
    staged = [found[one("staged_bytes_total", sink=sink)] for sink in ("a", "b")]
    assert staged == [120, 0]
    assert found[one("source_lag_records")] == 9
    assert found[one("event_time_timestamp_seconds")] == 1_700_000_000.5
    assert found[one("epoch_step_seconds_sum", step="stage", sink="")] == 0.03
    assert found[one("epoch_step_seconds_sum", step="apply", sink="a")] == 0.2
    assert found[one("epoch_seconds_count")] == 1
    for name in ("epoch_applied", "query_progress", "query_start"):
        assert 0 <= time.time() - found[one(f"{name}_timestamp_seconds")] < 60


def test_a_step_of_a_sinks_writers_is_that_of_the_slowest_part() -> None:
    """The steps of one part in several tries add up; those of the epoch itself are other metrics."""
    steps = [
        TimedStep("apply", 0.0, 900.0, "a"),
        TimedStep("flush", 0.0, 200.0, "a", 0),
        TimedStep("flush", 0.0, 300.0, "a", 1),
        TimedStep("flush", 0.0, 400.0, "a", 1),
        TimedStep("commit", 0.0, 50.0, "a", 0),
        TimedStep("flush", 0.0, 100.0, "b", 0),
    ]
    metrics = DriverMetrics("clicks")
    metrics.applied(DecidedEpoch(RECORD, replayed=False), EpochTimings(timed=steps))
    found = read(metrics)
    sums = {
        key[1]: value for key, value in found.items() if key[0].endswith("sink_step_seconds_sum")
    }
    assert sums == {
        one("", sink="a", step="flush")[1]: 0.7,
        one("", sink="a", step="commit")[1]: 0.05,
        one("", sink="b", step="flush")[1]: 0.1,
    }


def test_the_lag_in_seconds_counts_from_the_plan_that_saw_the_oldest_input() -> None:
    metrics, lag = DriverMetrics("clicks"), one("source_lag_seconds")
    assert lag not in read(metrics), "before its first plan the driver knows of no input"
    start, caught_up = timings(), timings()
    start.planned_ms = (time.time() - 60) * 1000
    caught_up.sources = tuple(replace(source, end=source.latest) for source in start.sources)
    metrics.planned(7, start)
    assert 60 <= read(metrics)[lag] < 90
    metrics.applied(DecidedEpoch(RECORD, replayed=False), start)
    assert 60 <= read(metrics)[lag] < 90, "the epoch leaves nine records that its plan saw"
    metrics.planned(8, caught_up)
    metrics.applied(DecidedEpoch(replace(RECORD, epoch=8), replayed=False), caught_up)
    assert read(metrics)[lag] == 0


def test_a_driver_that_found_no_input_has_no_lag() -> None:
    metrics = DriverMetrics("clicks")
    with served(metrics):
        metrics.sample(lambda: (True, None))
    assert read(metrics)[one("source_lag_seconds")] == 0


def test_the_parts_of_the_start_are_exported_as_they_become_known() -> None:
    metrics = DriverMetrics("clicks")
    metrics.start_took({"store": 0.5})
    metrics.start_took({"store": 0.5, "query": 2.0})
    found = read(metrics)
    assert [found[one("start_seconds", part=part)] for part in ("store", "query")] == [0.5, 2.0]


def test_restarts_are_those_that_the_supervisor_counts() -> None:
    restarts = one("driver_restarts_total")
    assert read(DriverMetrics("clicks", restarts=3))[restarts] == 3
    assert read(DriverMetrics("clicks", restarts=0))[restarts] == 0
    assert restarts not in read(DriverMetrics("clicks")), "the operator counts those of its drivers"


def test_an_epoch_is_in_doubt_from_its_decision_until_every_sink_has_it() -> None:
    metrics, doubt = DriverMetrics("clicks"), one("epoch_in_doubt_timestamp_seconds")
    assert doubt not in read(metrics)
    metrics.decided(RECORD)
    assert read(metrics)[doubt] == 1_700_000_001
    metrics.applied(DecidedEpoch(RECORD, replayed=True), timings())
    assert doubt not in read(metrics)


def test_an_older_epoch_that_is_redone_is_not_the_newest_decision() -> None:
    metrics = DriverMetrics("clicks")
    for epoch in (7, 5):
        metrics.decided(replace(RECORD, epoch=epoch, decided_at_ms=epoch * 1000))
    found = read(metrics)
    assert found[one("epoch_decided")] == found[one("epoch_in_doubt_timestamp_seconds")] == 7


def test_a_replay_says_nothing_of_the_lag_and_of_whole_epochs() -> None:
    """A recovery has no plan that knows the lag, and an earlier attempt did a part of the epoch."""
    metrics = DriverMetrics("clicks")
    metrics.applied(DecidedEpoch(RECORD, replayed=True), timings(apply_a=5))
    found = read(metrics)
    assert one("source_lag_records") not in found
    assert one("epoch_seconds_count") not in found
    assert found[one("epoch_step_seconds_count", step="apply", sink="a")] == 1


def test_kinds_of_dead_letters_beyond_twenty_are_one_series() -> None:
    metrics = DriverMetrics("clicks")
    counts = {f"dead_letters_k{number}": 1 for number in range(25)}
    metrics.applied(DecidedEpoch(replace(RECORD, counts=counts), replayed=False), timings())
    found = read(metrics)
    letters = {key: value for key, value in found.items() if "dead_letters_total" in key[0]}
    assert letters[one("dead_letters_total", kind="other")] == 5
    assert len(letters) == 21


def test_state_and_watermark_come_from_sparks_report() -> None:
    metrics = DriverMetrics("clicks")
    with served(metrics):
        metrics.sample(lambda: (True, StreamingQueryProgress.fromJson(PROGRESS)))
    found = read(metrics)
    assert found[one("state_rows", operator="stateStoreSave")] == 42
    assert found[one("state_memory_bytes", operator="stateStoreSave")] == 2000
    assert found[one("watermark_timestamp_seconds")] == 1_700_000_000.25
    assert 0 <= time.time() - found[one("query_progress_timestamp_seconds")] < 60


def test_a_report_that_cannot_be_read_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.metrics._SAMPLE_EVERY_S", 0.0)

    def fails() -> tuple[bool, None]:
        raise ConnectionError("the JVM is dead")

    metrics = DriverMetrics("clicks")
    with served(metrics), caplog.at_level(logging.WARNING):
        metrics.sample(fails)
        metrics.sample(fails)
    (line,) = caplog.messages
    assert "the JVM is dead" in line


def test_spark_is_not_asked_without_a_port_or_twice_within_seconds() -> None:
    calls: list[int] = []

    def report() -> tuple[bool, None]:
        calls.append(1)
        return False, None

    DriverMetrics("clicks").sample(report)
    assert not calls
    metrics = DriverMetrics("clicks")
    with served(metrics):
        metrics.sample(report)
        metrics.sample(report)
    assert len(calls) == 1


def test_a_port_that_is_taken_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other, caplog.at_level(logging.WARNING):
        other.bind(("0.0.0.0", 0))  # noqa: S104 - the server's address
        other.listen()
        port = other.getsockname()[1]
        metrics = DriverMetrics("clicks")
        metrics.serve(port)
        metrics.applied(DecidedEpoch(RECORD, replayed=False), timings())
        metrics.close()
    (line,) = caplog.messages
    assert f"metrics cannot be served at port {port}" in line
    assert "the job goes on" in line


def test_a_closed_port_can_be_used_again() -> None:
    first, second = DriverMetrics("clicks"), DriverMetrics("views")
    with served(first) as port:
        pass
    second.serve(port)
    try:
        scrape(port)
    finally:
        second.close()


def test_scrapes_are_consistent_while_another_thread_applies() -> None:
    metrics, scrapes = DriverMetrics("clicks"), []
    epochs = range(1, 400)

    def run() -> None:
        for epoch in epochs:
            record = replace(RECORD, epoch=epoch)
            metrics.decided(record)
            metrics.applied(DecidedEpoch(record, replayed=False), timings(stage=1))

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        scrapes.append(read(metrics))
    thread.join()
    last = read(metrics)
    assert last[one("sink_rows_total", sink="a")] == 5 * len(epochs)
    for found in scrapes:
        if one("epoch_applied") in found:
            ahead = found[one("epoch_decided")] - found[one("epoch_applied")]
            assert ahead == (one("epoch_in_doubt_timestamp_seconds") in found)
