"""Letters of refused rows, in a topic and in a table, and their kinds."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from sluicegate.sinks.contract import BoundSink
from sluicegate.spark import letters
from sluicegate.spark.outputs import SOURCE

TOPIC = pa.schema([("key", pa.binary()), ("value", pa.binary())])
TABLE = pa.schema(
    [
        ("Reason", pa.string()),
        ("payload", pa.string()),
        ("source", pa.string()),
        ("source_offset", pa.int64()),
        ("source_timestamp", pa.int32()),
    ]
)
ROW = pa.RecordBatch.from_pylist(
    [
        {
            "s0": {"value": b"\xff"},
            "s1": None,
            SOURCE: '{"topic":"t","offset":7,"timestamp":"2026-01-07T12:00:00.000Z"}',
        }
    ]
)


class Taker:
    """A sink that takes letters whose payload is short enough."""

    id = "t"

    def __init__(self, longest: int = 1 << 30) -> None:
        self._longest = longest

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        (row,) = batch.to_pylist()
        payload = row.get("payload") or json.loads(row["value"])["payload"]
        return pa.array(["too long"]) if len(payload) > self._longest else None


def staged(schema: pa.Schema, letter: letters.Letter, longest: int = 1 << 30) -> dict[str, Any]:
    """Return a letter as the sink gets it."""
    taker: BoundSink = Taker(longest)  # type: ignore[assignment]
    (row,) = letters.fitting(taker, schema, letter).to_pylist()
    return dict(row)


def test_a_letter_in_a_topic_says_reason_row_and_where_it_came_from() -> None:
    letter = json.loads(
        staged(TOPIC, letters.refused_letter(ROW, "refused by mysql.t: too long"))["value"]
    )
    assert letter["reason"] == "refused by mysql.t: too long"
    assert letter["payload"] == '[{"value": "�"}]'
    assert letter["payload_of"] == letters.STAGED_ROW
    assert letter["source"]["offset"] == 7


def test_a_row_without_a_source_is_a_letter_without_one() -> None:
    assert "source" not in letters.refused_letter(ROW.drop_columns([SOURCE]), "refused by t: x")


def test_a_letter_in_a_table_has_a_column_for_each_thing_that_the_table_has() -> None:
    row = staged(TABLE, letters.refused_letter(ROW, "refused by t: x"))
    assert row["Reason"] == "refused by t: x"
    assert row["source_offset"] == 7
    assert json.loads(row["source"])["topic"] == "t"


def test_a_value_that_its_column_cannot_have_is_null() -> None:
    assert staged(TABLE, letters.refused_letter(ROW, "refused by t: x"))["source_timestamp"] is None


def test_a_payload_is_cut_until_the_sink_takes_it() -> None:
    letter = {"reason": "late: x", "payload": "p" * 100}
    assert len(staged(TABLE, letter, longest=30)["payload"]) == 25
    assert len(json.loads(staged(TOPIC, letter, longest=30)["value"])["payload"]) == 25


def test_a_jobs_own_letter_in_a_table_stays_what_it_is() -> None:
    own = letters.own_letter({"Reason": "late: x", "payload": "p", "source": '{"a":1}'})
    assert own is not None
    assert staged(TABLE, own)["Reason"] == "late: x"


def test_kinds_are_the_first_words_of_the_reasons() -> None:
    reasons = ["late: a", "late: b", "Unparsed: x", "refused by t: y", "?"]
    values = [json.dumps({"reason": r, "payload": '"reason":"no"'}).encode() for r in reasons]
    found = letters.kinds(pa.record_batch({"value": pa.array(values, pa.binary())}))
    assert found == {"late": 2, "unparsed": 1, "refused": 1, "other": 1}
    assert letters.kinds(pa.record_batch({"Reason": reasons})) == {
        "late": 2,
        "unparsed": 1,
        "refused": 1,
        "other": 1,
    }


def test_letters_of_another_form_are_counted_as_other() -> None:
    assert letters.kinds(pa.record_batch({"text": ["a", "b"]})) == {"other": 2}
    assert letters.kinds(pa.record_batch({"value": pa.array([b"\xff"], pa.binary())})) == {
        "other": 1
    }
