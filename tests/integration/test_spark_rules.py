"""Rules of the design that only a running Spark can break; each test fails without its rule.

In this process, on files and memory. Rules that need a killed driver are in test_spark_drivers and
in tests/robustness.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from infra.local_services import Services
from infra.local_services.endpoints import KafkaEndpoint
from sluicegate import EpochSettings, KafkaSink, LateRows, epochs
from sluicegate.errors import OffsetLogDiverged, RowRefused, StateIncomplete
from sluicegate.sinks.kafka.connection import group_id
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.epoch_runner import EpochRunner
from sluicegate.spark.outputs import Output, Outputs, nondeterministic
from sluicegate.spark.query_execution import RunningExecution
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.kafka_source import kafka_source
from tests.integration.kafka_reader import read_topic
from tests.robustness.traffic.ip_count_harness import feed
from tests.robustness.traffic.memory_streams import Stream, failing_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def hits(spark: SparkSession, tmp_path: Path) -> Stream:
    """Return five epochs of hits, ten seconds apart, of two addresses, with a late hit in each."""
    stream = Stream(spark, tmp_path, "ip string, at timestamp")
    for epoch in range(5):
        times = [epoch * 10 + s for s in (0, 3, 7)] + [max(epoch * 10 - 30, 0)]
        stream.add([{"ip": f"10.0.0.{s % 2}", "at": f"2026-01-07 12:00:{s:02}"} for s in times])
    return stream


def counts(stream: Stream) -> DataFrame:
    """Return the hits per address in windows of five seconds."""
    windows = F.window("at", "5 seconds")
    grouped = stream.rows.withWatermark("at", "5 seconds").groupBy(windows, "ip")
    return grouped.agg(F.count("*").alias("hits")).select(
        F.col("window.start").cast("string").alias("at"), "ip", "hits"
    )


def as_set(rows: list[dict[str, object]]) -> set[tuple[object, ...]]:
    """Return rows for comparison; assert that each occurs once."""
    unique = {tuple(row.values()) for row in rows}
    assert len(unique) == len(rows), "a row occurs twice"
    return unique


# --- rule 3: the offsets must be the same -----------------------------------------------------


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_rule_03_offsets_changed_after_the_decision_stop_the_job(hits: Stream, change: str) -> None:
    """The job stops with exit code 66, and the decided epoch is not applied with other offsets."""
    sinks = [MemorySink(hits.store("out"))]
    with failing_at("after-decide@2"):
        hits.run(hits.rows, sinks)
    offsets = hits.checkpoint / "offsets" / "2"
    offsets.with_name(".2.crc").unlink(missing_ok=True)
    text = offsets.read_text()
    offsets.unlink()
    if change == "edited":
        offsets.write_text(text.replace('"batchTimestampMs":', '"batchTimestampMs":1'))
    with pytest.raises(OffsetLogDiverged) as error_info:
        hits.run(hits.rows, sinks)
    assert error_info.value.exit_code == 66
    assert len(hits.committed_rows("out")) == 2 * 4


def test_rule_03_offsets_replaced_while_the_epoch_runs_stop_the_job(
    hits: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one driver are never decided with the offsets of another."""
    run, file = EpochRunner.run, hits.checkpoint / "offsets" / "1"

    def replaced(self: EpochRunner, batch: DataFrame, epoch: int) -> None:
        if epoch == 1:
            *before, source = file.read_text().splitlines()
            other = json.dumps({"logOffset": json.loads(source)["logOffset"] + 1})
            file.write_text("\n".join([*before, other]))
        run(self, batch, epoch)

    monkeypatch.setattr(EpochRunner, "run", replaced)
    with pytest.raises(OffsetLogDiverged, match="another driver wrote it"):
        hits.run(hits.rows, [MemorySink(hits.store("out"))])
    assert len(hits.committed_rows("out")) == 4


@pytest.mark.parametrize(
    "empty", [("commits/2",), ("commits/2", "commits/1"), ("commits/2", "offsets/3")]
)
def test_a_job_goes_on_where_a_power_cut_left_files_of_spark_empty(
    hits: Stream, empty: tuple[str, ...]
) -> None:
    """Epoch 2 is decided and applied; of epoch 3 Spark has planned the input."""
    sinks = [MemorySink(hits.store("out"))]
    with failing_at("before-stage@3"):
        hits.run(hits.rows, sinks)
    for name in empty:
        (hits.checkpoint / name).with_name(f".{Path(name).name}.crc").unlink(missing_ok=True)
        (hits.checkpoint / name).write_bytes(b"")
    hits.run(hits.rows, sinks)
    assert len(hits.committed_rows("out")) == 5 * 4


@pytest.mark.parametrize("folder", ["offsets", "commits"])
def test_rule_03_a_partial_first_epoch_does_not_prevent_a_start(hits: Stream, folder: str) -> None:
    """A file that Spark had only begun does not prevent a start (SPARK-53103)."""
    (hits.checkpoint / folder).mkdir(parents=True)
    (hits.checkpoint / folder / ".0.1f2e.tmp").write_text("v1")
    hits.run(counts(hits), [MemorySink(hits.store("out"))])
    assert hits.newest() == 5  # one for each file, one that closes windows
    assert as_set(hits.committed_rows("out"))


# --- rule 7: one pass -----------------------------------------------------------------------------


def test_rule_07_two_sinks_of_an_output_get_the_same_rows(hits: Stream) -> None:
    """A non-deterministic column has the same values in both sinks."""
    rows = hits.rows.select("ip", F.expr("uuid()").alias("id"))
    hits.run(rows, [MemorySink(hits.store("one")), MemorySink(hits.store("other"))])
    assert len(hits.committed_rows("one")) == 5 * 4
    assert as_set(hits.committed_rows("one")) == as_set(hits.committed_rows("other"))


def test_rule_07_two_outputs_are_staged_by_one_job(hits: Stream, spark: SparkSession) -> None:
    """Spark runs one job per epoch for any number of outputs."""
    outputs = {"all": hits.rows, "some": hits.rows.where("ip = '10.0.0.1'")}
    sinks = [
        MemorySink(hits.store("all"), of="all"),
        MemorySink(hits.store("some"), of="some"),
    ]
    tracker = spark.sparkContext.statusTracker()
    query = hits.run(outputs, sinks)
    jobs = len(tracker.getJobIdsForGroup(str(query._query.runId)))
    assert jobs == 5
    assert len(hits.committed_rows("some")) == len(
        [r for r in hits.committed_rows("all") if r["ip"] == "10.0.0.1"]
    )


# --- rule 9: complete state -----------------------------------------------------------------------


def test_rule_09_an_epoch_without_all_state_partitions_is_not_decided(
    hits: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that Spark folds to false runs no task; the epoch stays undecided, the checkpoint valid."""
    rows_to_stage = Outputs.rows_to_stage
    sinks = [MemorySink(hits.store("out"))]

    def no_rows(self: Outputs, batch: DataFrame, late: int | None) -> DataFrame:
        return rows_to_stage(self, batch, late).where(F.lit(False))  # noqa: FBT003 - Spark's signature

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "rows_to_stage", no_rows)
        with pytest.raises(StateIncomplete):
            hits.run(counts(hits), sinks)
    assert hits.newest() is None
    assert hits.committed_rows("out") == []
    hits.run(counts(hits), sinks)
    assert sum(row["hits"] for row in _latest_counts(hits.committed_rows("out"))) == 5 * 4 - LATE


LATE = 2
"""Late hits of the fixture: one an epoch, from the first whose watermark is beyond its window."""


def _latest_counts(rows: list[dict[str, object]]) -> list[dict[str, int]]:
    """Return the newest count of each window and address."""
    return list({(row["at"], row["ip"]): row for row in rows}.values())  # type: ignore[arg-type]


# --- rule 10: refuse early ------------------------------------------------------------------------


@pytest.fixture
def named_things(spark: SparkSession, tmp_path: Path) -> Stream:
    """Return a stream of named things, one without a name."""
    stream = Stream(spark, tmp_path, "id long, name string")
    stream.add([{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}])
    return stream


def strict_and_lax_sinks(stream: Stream) -> list[MemorySink]:
    """Return a sink that needs a name, and one that does not."""
    strict = MemorySink(stream.store("strict"), required=("name",), of="things")
    return [strict, MemorySink(stream.store("lax"), of="things")]


def test_rule_10_a_refused_row_is_a_dead_letter_and_in_no_sink(named_things: Stream) -> None:
    """A sink that would accept it does not get it either: a row is in all sinks or in none."""
    dead_letters = named_things.rows.where("id < 0").select(
        F.col("name").cast("binary").alias("value")
    )
    named_things.run(
        {"things": named_things.rows, "letters": dead_letters},
        strict_and_lax_sinks(named_things),
        dead_letters=MemorySink(named_things.store("letters"), of="letters"),
    )
    assert [row["id"] for row in named_things.committed_rows("strict")] == [1, 3]
    assert [row["id"] for row in named_things.committed_rows("lax")] == [1, 3]
    (dead_letter,) = (json.loads(row["value"]) for row in named_things.committed_rows("letters"))
    assert "column name is null" in dead_letter["reason"]
    assert '"id": 2' in dead_letter["payload"]


def test_rule_10_without_dead_letters_a_refused_row_stops_the_epoch(named_things: Stream) -> None:
    """The error has the reason; the epoch is undecided and none of its rows is visible."""
    with pytest.raises(RowRefused, match="column name is null"):
        named_things.run({"things": named_things.rows}, strict_and_lax_sinks(named_things))
    assert named_things.newest() is None
    assert named_things.committed_rows("strict") == named_things.committed_rows("lax") == []


# --- rule 11: markers that have expired --------------------------------------------------------


class ExpiringMarkers:
    """A stream into a Kafka topic whose markers expire when a test says so."""

    def __init__(self, stream: Stream, kafka: KafkaEndpoint) -> None:
        self._stream, self._kafka = stream, kafka
        self._topic = stream.store("rule11")
        kafka.create_topic(self._topic, 1)

    def run(self, *epochs_rows: list[dict[str, object]]) -> None:
        self._stream.add(*epochs_rows)
        sink = KafkaSink(self._topic, bootstrap=self._kafka.bootstrap)
        self._stream.run(self._stream.rows, [sink])

    def expire(self) -> None:
        """Delete the group: the broker does nothing else when the last group offset expires."""
        lineage = read_lineage(open_store(self._stream.url))
        assert lineage
        group = group_id(lineage.id, f"kafka.{self._topic}")
        admin = self._kafka.admin()
        admin.delete_consumer_groups([group])[group].result(timeout=20)

    def values(self) -> list[object]:
        records = read_topic(self._kafka.bootstrap, self._topic)
        return [json.loads(record.value or b"")["x"] for record in records]


@pytest.fixture
def expiring(spark: SparkSession, tmp_path: Path, services: Services) -> ExpiringMarkers:
    return ExpiringMarkers(Stream(spark, tmp_path, "x long"), services.kafka)


def test_rule_11_a_job_goes_on_exactly_after_its_kafka_markers_have_expired(
    expiring: ExpiringMarkers,
) -> None:
    expiring.run([{"x": 0}], [{"x": 1}])
    for x in (2, 3):
        expiring.expire()
        expiring.run([{"x": x}])
    assert expiring.values() == [0, 1, 2, 3]


@pytest.mark.parametrize("crash", ["after-decide@1", "before-done@1"])
def test_rule_11_a_decided_epoch_goes_on_exactly_after_its_kafka_markers_have_expired(
    expiring: ExpiringMarkers, crash: str
) -> None:
    """The driver died before or after the apply, and nobody started the job until now."""
    with failing_at(crash):
        expiring.run([{"x": 0}], [{"x": 1}])
    expiring.expire()
    expiring.run([{"x": 2}])
    assert expiring.values() == [0, 1, 2]


def test_rule_11_an_overlapped_epoch_is_marked_while_the_job_idles(hits: Stream) -> None:
    """If the driver is killed after its markers have expired, the next one need not read them."""
    settings = EpochSettings(interval="0 seconds", overlap=True)
    sinks = [MemorySink(hits.store("out"))]
    writer = epochs(hits.rows, sinks=sinks, name="stream", checkpoint=hits.url, settings=settings)
    query, deadline = writer.start(), time.monotonic() + 60
    while not (hits.checkpoint / "epochs" / "4.applied").exists():
        assert not query.await_end(0.2)
        assert time.monotonic() < deadline
    query.stop()


# --- what Spark itself does at a start ----------------------------------------------------------------


def test_a_driver_goes_on_over_an_epoch_without_records_that_another_one_planned(
    spark: SparkSession, tmp_path: Path, services: Services
) -> None:
    """Its Kafka source must fetch the latest offsets, although it is no part of that plan (SPARK-55271)."""
    stream = Stream(spark, tmp_path, "no files")
    topic = stream.store("events")
    services.kafka.create_topic(topic, 1)
    feed(services.kafka.bootstrap, topic, [b"x"])
    records = kafka_source(spark, topic, services.kafka.bootstrap, 10)
    windows = records.withWatermark("timestamp", "1 second").groupBy(
        F.window("timestamp", "1 second")
    )
    sinks = [MemorySink(stream.store("out"))]
    with failing_at("before-decide@1"):
        stream.run(windows.count().select("count"), sinks, output_mode="append")
    stream.run(windows.count().select("count"), sinks, output_mode="append")
    assert stream.newest() == 1


# --- rule 16: skipping the plan -------------------------------------------------------------------


def closed_windows(stream: Stream, name: str, *, with_crash: bool) -> set[tuple[object, ...]]:
    """Return the windows that a finite run closes; `with_crash` replays its last epoch."""
    sinks = [MemorySink(stream.store(name))]
    if with_crash:
        with failing_at(f"after-decide@{stream.files - 1}"):
            stream.run(counts(stream), sinks, output_mode="append")
        assert stream.newest() == stream.files - 1
    stream.run(counts(stream), sinks, output_mode="append")
    return as_set(stream.committed_rows(name))


@pytest.fixture
def uninterrupted(hits: Stream, tmp_path: Path) -> set[tuple[object, ...]]:
    """Return the windows that an undisturbed run closes."""
    windows = closed_windows(hits, "undisturbed", with_crash=False)
    hits.checkpoint.rename(tmp_path / "other-checkpoint")
    return windows


def test_rule_16_a_replayed_last_epoch_closes_the_windows(
    hits: Stream, uninterrupted: set[tuple[object, ...]]
) -> None:
    """The watermark of the skipped plan is restored, so the output equals an undisturbed run's."""
    assert closed_windows(hits, "replayed", with_crash=True) == uninterrupted


def test_rule_16_without_the_restored_watermark_windows_stay_open(
    hits: Stream, uninterrupted: set[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rule windows are missing, so the test above does test the rule."""
    monkeypatch.setattr(RunningExecution, "restore_watermark", lambda *_: None)
    assert closed_windows(hits, "unrestored", with_crash=True) < uninterrupted


def test_rule_16_a_replay_of_a_plan_with_a_shuffle_starts_no_spark_job(
    hits: Stream, spark: SparkSession
) -> None:
    """With adaptive execution Spark would run the plan up to its shuffle before the callback skips it."""
    rows, sinks = hits.rows.repartition(2, "ip"), [MemorySink(hits.store("out"))]
    with failing_at(f"after-decide@{hits.files - 1}"):
        hits.run(rows, sinks)
    query = hits.run(rows, sinks)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(query._query.runId))
    assert len(jobs) == 0
    assert len(hits.committed_rows("out")) == 5 * 4


# --- late rows are not silently lost -----------------------------------------------------------------


@pytest.mark.parametrize("session_has", ["our-classes", "no-class-of-ours"])
def test_late_rows_are_exactly_those_that_spark_drops(
    hits: Stream, session_has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hit is counted or among the late rows, and Spark reports dropped rows."""
    if session_has != "our-classes":
        monkeypatch.setattr("sluicegate.spark.late_rows.drops_timely_rows", lambda _: False)
        monkeypatch.setattr("sluicegate.spark.outputs.drops_timely_rows", lambda _: False)
    late = hits.rows.select(F.window("at", "5 seconds").end.alias("window_end"), "ip")
    query = hits.run(
        {"counts": counts(hits), "late": LateRows(late, "window_end")},
        [MemorySink(hits.store("counts"), of="counts"), MemorySink(hits.store("late"), of="late")],
    )
    progress = query._query.recentProgress
    dropped = sum(
        operator.numRowsDroppedByWatermark
        for query_progress in progress
        for operator in query_progress.stateOperators
    )
    counted = sum(row["hits"] for row in _latest_counts(hits.committed_rows("counts")))
    assert dropped == len(hits.committed_rows("late")) == LATE
    assert counted + len(hits.committed_rows("late")) == 5 * 4


def test_late_rows_are_found_next_to_a_count_that_has_no_watermark(hits: Stream) -> None:
    """Spark gives the state of such a count the watermark 0, and drops late rows by that of the other."""
    total = hits.rows.groupBy("ip").count()
    late = hits.rows.select(F.window("at", "5 seconds").end.alias("window_end"), "ip")
    late_rows = LateRows(late, "window_end")
    outputs: dict[str, Output] = {"counts": counts(hits), "total": total, "late": late_rows}
    hits.run(outputs, [MemorySink(hits.store(name), of=name) for name in outputs])
    assert len(hits.committed_rows("late")) == LATE


def test_the_columns_of_late_rows_are_computed_for_late_rows_only(hits: Stream) -> None:
    """A dead letter is JSON with a hash: for each row of the input it would cost more than the count."""
    timely = F.second("at") % 10 > 0
    letter = F.when(timely, F.raise_error(F.lit("computed for a timely row"))).otherwise(
        F.lit("late")
    )
    late = hits.rows.select(
        F.window("at", "5 seconds").end.alias("window_end"), letter.alias("letter")
    )
    hits.run(
        {"counts": counts(hits), "late": LateRows(late, "window_end")},
        [MemorySink(hits.store("counts"), of="counts"), MemorySink(hits.store("late"), of="late")],
    )
    assert hits.committed_rows("late") == [{"window_end": ANY, "letter": "late"}] * LATE


def test_two_outputs_that_are_not_deterministic_are_named(hits: Stream) -> None:
    """Each has a random value of its own, so a split by it would lose rows and repeat others."""
    drawn = hits.rows.withColumn("r", F.rand())
    split = {"sample": drawn.where("r < 0.1"), "rest": drawn.where("r >= 0.1")}
    assert nondeterministic(split) == ["sample", "rest"]
    assert nondeterministic({"all": hits.rows, "counts": counts(hits)}) == []
