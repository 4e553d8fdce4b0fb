"""Dead letters of an epoch: the source of a refused row, and the counts by kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.cli.app import app
from sluicegate.protocol.record import EpochRecord
from sluicegate.sinks.memory import MemorySink
from sluicegate.sinks.reserved_columns import SOURCE
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.memory_streams import Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """Create an epoch of four rows: one without a name, which the sink refuses, and one unparsed."""
    stream = Stream(spark, tmp_path, "id long, name string")
    names = ["a", None, "c", "?"]
    stream.add([{"id": i, "name": name} for i, name in enumerate(names)])
    return stream


def run(stream: Stream, rows: DataFrame, dead_letters: DataFrame) -> list[dict[str, object]]:
    """Write rows to a sink that requires a name; return the rows of the dead letters."""
    stream.run(
        {"things": rows, "letters": dead_letters},
        [MemorySink(stream.store("named"), required=("name",), of="things")],
        dead_letters=MemorySink(stream.store("letters"), of="letters"),
    )
    return stream.committed_rows("letters")


def unparsed_letters(rows: DataFrame) -> DataFrame:
    """Return the rows that do not parse, as dead letters of a topic."""
    dead_letter = F.struct(
        F.lit("unparsed: no name").alias("reason"), F.col("name").alias("payload")
    )
    return rows.where("name = '?'").select(F.to_json(dead_letter).cast("binary").alias("value"))


def parsed_rows(stream: Stream) -> DataFrame:
    """Return the rows that parse, with their source."""
    source = F.struct(F.lit("t").alias("topic"), F.col("id").alias("offset"))
    return stream.rows.where("name IS NULL OR name != '?'").withColumn(SOURCE, source)


def record(stream: Stream) -> EpochRecord:
    """Return the record of the epoch."""
    stored = StoredEpochLog(open_store(str(stream.checkpoint))).read(0)
    assert stored is not None
    return stored


def test_the_dead_letter_of_a_refused_row_has_its_source(stream: Stream) -> None:
    """No sink gets the column with the source."""
    dead_letters = run(stream, parsed_rows(stream), unparsed_letters(stream.rows))
    contents = [json.loads(str(row["value"], "utf-8")) for row in dead_letters]  # type: ignore[call-overload]
    (dead_letter,) = [
        dead_letter for dead_letter in contents if dead_letter["reason"].startswith("refused")
    ]
    assert dead_letter["source"] == {"topic": "t", "offset": 1}
    assert [set(row) for row in stream.committed_rows("named")] == [{"id", "name"}] * 2


def test_without_a_source_from_the_job_a_dead_letter_has_none(stream: Stream) -> None:
    dead_letters = run(stream, parsed_rows(stream).drop(SOURCE), unparsed_letters(stream.rows))
    assert all(b"source" not in row["value"] for row in dead_letters)  # type: ignore[operator]


def test_the_record_counts_rows_in_and_dead_letters_by_kind(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """A source that two outputs read is counted once; the progress line and the CLI show the counts."""
    with caplog.at_level("INFO", "sluicegate.epoch"):
        run(stream, parsed_rows(stream), unparsed_letters(stream.rows))
    counts = dict(record(stream).counts)
    assert counts == {
        "rows_in": 4,
        "refused": 1,
        "dead_letters_refused": 1,
        "dead_letters_unparsed": 1,
    }
    assert "rows, 4 in, dead letters: 1 refused, 1 unparsed; " in caplog.text
    output = CliRunner().invoke(app, ["epochs", "show", str(stream.checkpoint), "0"]).output
    assert "rows in: 4" in output
    assert "dead letters, unparsed: 1" in output


def test_dead_letters_of_a_table_have_columns(stream: Stream) -> None:
    reason = F.lit("unparsed: no name").alias("reason")
    empty = F.lit(None).cast("string")
    dead_letters = stream.rows.where("name = '?'").select(
        reason, F.col("name").alias("payload"), empty.alias("source"), empty.alias("payload_of")
    )
    rows = run(stream, parsed_rows(stream), dead_letters)
    by_kind = {str(row["reason"]).split(" ")[0]: row for row in rows}
    assert by_kind["unparsed:"]["payload"] == "?"
    assert by_kind["refused"]["source"] == '{"topic": "t", "offset": 1}'
    assert record(stream).counts["dead_letters_refused"] == 1
