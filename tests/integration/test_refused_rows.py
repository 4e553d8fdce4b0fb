"""What an epoch says of its dead letters: where a refused row came from, and how many of which kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.cli.commands import app
from sluicegate.protocol.record import EpochRecord
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.outputs import SOURCE
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import open_objects
from tests.faults.streams import Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def things(spark: SparkSession, tmp_path: Path) -> Stream:
    """Give an epoch of four things: one without a name, which the sink refuses, and one unparsed."""
    made = Stream(spark, tmp_path, "id long, name string")
    names = ["a", None, "c", "?"]
    made.add([{"id": i, "name": name} for i, name in enumerate(names)])
    return made


def buried(things: Stream, rows: DataFrame, letters: DataFrame) -> list[dict[str, object]]:
    """Run rows into a sink that needs a name; return the letters' rows."""
    things.run(
        {"things": rows, "letters": letters},
        [MemorySink(things.store("named"), required=("name",), of="things")],
        dead_letters=MemorySink(things.store("letters"), of="letters"),
    )
    return things.seen("letters")


def unparsed(rows: DataFrame) -> DataFrame:
    """Return what does not parse, as letters of a topic."""
    letter = F.struct(F.lit("unparsed: no name").alias("reason"), F.col("name").alias("payload"))
    return rows.where("name = '?'").select(F.to_json(letter).cast("binary").alias("value"))


def parsed_rows(things: Stream) -> DataFrame:
    """Return the rows that parse, with where they came from."""
    source = F.struct(F.lit("t").alias("topic"), F.col("id").alias("offset"))
    return things.rows.where("name IS NULL OR name != '?'").withColumn(SOURCE, source)


def record(things: Stream) -> EpochRecord:
    """Return the record of the epoch."""
    found = StoredEpochLog(open_objects(str(things.checkpoint))).read(0)
    assert found is not None
    return found


def test_the_letter_of_a_refused_row_says_where_it_came_from(things: Stream) -> None:
    """And no sink gets the column that says it."""
    letters = buried(things, parsed_rows(things), unparsed(things.rows))
    refused = [json.loads(str(row["value"], "utf-8")) for row in letters]  # type: ignore[call-overload]
    (letter,) = [letter for letter in refused if letter["reason"].startswith("refused")]
    assert letter["source"] == {"topic": "t", "offset": 1}
    assert [set(row) for row in things.seen("named")] == [{"id", "name"}] * 2


def test_a_letter_says_nothing_of_a_source_that_the_job_does_not_give(things: Stream) -> None:
    letters = buried(things, parsed_rows(things).drop(SOURCE), unparsed(things.rows))
    assert all(b"source" not in row["value"] for row in letters)  # type: ignore[operator]


def test_the_record_counts_rows_in_and_letters_by_kind(
    things: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """A source that two outputs read is counted once; the progress line and the CLI say it too."""
    with caplog.at_level("INFO", "sluicegate.epoch"):
        buried(things, parsed_rows(things), unparsed(things.rows))
    counts = dict(record(things).counts)
    assert counts == {
        "rows_in": 4,
        "refused": 1,
        "dead_letters_refused": 1,
        "dead_letters_unparsed": 1,
    }
    assert "rows, 4 in, dead letters: 1 refused, 1 unparsed; " in caplog.text
    shown = CliRunner().invoke(app, ["epochs", "show", str(things.checkpoint), "0"]).output
    assert "rows in: 4" in shown
    assert "dead letters, unparsed: 1" in shown


def test_letters_of_a_table_have_columns(things: Stream) -> None:
    reason = F.lit("unparsed: no name").alias("reason")
    empty = F.lit(None).cast("string")
    letters = things.rows.where("name = '?'").select(
        reason, F.col("name").alias("payload"), empty.alias("source"), empty.alias("payload_of")
    )
    rows = buried(things, parsed_rows(things), letters)
    by_kind = {str(row["reason"]).split(" ")[0]: row for row in rows}
    assert by_kind["unparsed:"]["payload"] == "?"
    assert by_kind["refused"]["source"] == '{"topic": "t", "offset": 1}'
    assert record(things).counts["dead_letters_refused"] == 1
