"""Dead letters of refused rows, in a topic and in a table, and their kinds."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.dead_letters.letter import (
    STAGED_ROW,
    Fields,
    count_kinds,
    letter_of_row,
    refused_letter,
    stage_letter,
)
from sluicegate.sinks.contract import BoundSink
from sluicegate.sinks.reserved_columns import SOURCE

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


class LimitedSink:
    """A sink that accepts dead letters up to a length of the payload."""

    id = "t"

    def __init__(self, max_payload: int = 1 << 30) -> None:
        self._max_payload = max_payload

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        (row,) = batch.to_pylist()
        payload = json.loads(row["value"])["payload"] if "value" in row else row["payload"] or ""
        return pa.array(["too long"]) if len(payload) > self._max_payload else None


def staged(schema: pa.Schema, letter: Fields, max_payload: int = 1 << 30) -> dict[str, Any]:
    """Return a dead letter as the sink gets it."""
    sink: BoundSink = LimitedSink(max_payload)  # type: ignore[assignment]
    (row,) = stage_letter(sink, schema, letter).to_pylist()
    return dict(row)


def staged_in_topic(letter: Fields, max_bytes: int) -> bytes:
    """Return a dead letter as a topic gets it that limits its records."""

    class LimitedTopic(LimitedSink):
        def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
            (row,) = batch.to_pylist()
            return pa.array(["too long"]) if len(row["value"]) > max_bytes else None

    sink: BoundSink = LimitedTopic()  # type: ignore[assignment]
    (row,) = stage_letter(sink, TOPIC, letter).to_pylist()
    return bytes(row["value"])


def test_a_reason_that_is_too_long_is_cut_too() -> None:
    """It may contain a value of the row, such as the id that nobody knows."""
    letter = {"reason": "unknown: no " + "x" * 5000, "payload": "y" * 5000}
    written = json.loads(staged_in_topic(letter, 2000))
    assert written["reason"].startswith("unknown: no xxx")
    assert 200 < len(written["reason"]) < 2000


@pytest.mark.parametrize("characters", [(300, 5000), (5000, 300)])
def test_whichever_of_payload_and_reason_is_longer_is_cut(characters: tuple[int, int]) -> None:
    reason, payload = ("x" * number for number in characters)
    written = json.loads(staged_in_topic({"reason": reason, "payload": payload}, 2000))
    shorter = "reason" if len(reason) < len(payload) else "payload"
    assert len(written[shorter]) == 300
    assert 300 < len(written["reason"] + written["payload"]) < 2000


def test_a_dead_letter_in_a_topic_has_reason_row_and_source() -> None:
    letter = json.loads(staged(TOPIC, refused_letter(ROW, "refused by mysql.t: too long"))["value"])
    assert letter["reason"] == "refused by mysql.t: too long"
    assert letter["payload"] == '[{"value": "�"}]'
    assert letter["payload_of"] == STAGED_ROW
    assert letter["source"]["offset"] == 7


def test_a_row_without_a_source_gives_a_dead_letter_without_one() -> None:
    assert "source" not in refused_letter(ROW.drop_columns([SOURCE]), "refused by t: x")


def test_a_dead_letter_in_a_table_fills_the_columns_of_the_table() -> None:
    row = staged(TABLE, refused_letter(ROW, "refused by t: x"))
    assert row["Reason"] == "refused by t: x"
    assert row["source_offset"] == 7
    assert json.loads(row["source"])["topic"] == "t"


def test_a_value_that_its_column_cannot_represent_is_null() -> None:
    assert staged(TABLE, refused_letter(ROW, "refused by t: x"))["source_timestamp"] is None


def test_a_payload_is_cut_until_the_sink_accepts_it() -> None:
    letter = {"reason": "late: x", "payload": "p" * 100}
    assert len(staged(TABLE, letter, max_payload=30)["payload"]) == 25
    assert len(json.loads(staged(TOPIC, letter, max_payload=30)["value"])["payload"]) == 25


def test_a_jobs_own_dead_letter_in_a_table_is_unchanged() -> None:
    own = letter_of_row(pa.scalar({"Reason": "late: x", "payload": "p", "source": '{"a":1}'}))
    assert own is not None
    assert staged(TABLE, own)["Reason"] == "late: x"


@pytest.mark.parametrize(
    "own",
    [
        {"Reason": "empty: x", "payload": None, "source": '{"offset":3}'},
        {"value": '{"reason":"empty: x","source":{"offset":3}}'},
    ],
)
def test_a_dead_letter_of_a_record_without_a_value_is_staged_without_a_payload(
    own: dict[str, str | None],
) -> None:
    letter = letter_of_row(pa.scalar(own))
    assert letter is not None
    row = staged(TABLE, letter)
    assert (row["Reason"], row["payload"]) == ("empty: x", None)
    assert json.loads(row["source"]) == {"offset": 3}


def test_a_reason_is_cut_if_the_dead_letter_has_no_payload() -> None:
    letter = {"reason": "unknown: " + "x" * 5000, "source": {"offset": 3}}
    written = json.loads(staged_in_topic(letter, 2000))
    assert written["source"] == {"offset": 3}
    assert written["reason"].startswith("unknown: xxx")


def test_kinds_are_the_first_words_of_the_reasons() -> None:
    reasons = ["late: a", "late: b", "Unparsed: x", "refused by t: y", "?"]
    values = [json.dumps({"reason": r, "payload": '"reason":"no"'}).encode() for r in reasons]
    counts = count_kinds(pa.record_batch({"value": pa.array(values, pa.binary())}))
    assert counts == {"late": 2, "unparsed": 1, "refused": 1, "other": 1}
    assert count_kinds(pa.record_batch({"Reason": reasons})) == {
        "late": 2,
        "unparsed": 1,
        "refused": 1,
        "other": 1,
    }


def test_dead_letters_of_another_form_are_counted_as_other() -> None:
    assert count_kinds(pa.record_batch({"text": ["a", "b"]})) == {"other": 2}
    assert count_kinds(pa.record_batch({"value": pa.array([b"\xff"], pa.binary())})) == {"other": 1}
