"""Verification judges dead letters that were cut until their topic accepted them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sluicegate.dead_letters.letter import SHORT_REASON, refused_letter
from sluicegate.sinks.kafka.reader import Record
from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate.sinks.reserved_columns import SOURCE
from sluicegate_jobs.city_lookup import verify as city_lookup
from sluicegate_jobs.two_sinks import verify as two_sinks
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.limits import SinkLimits
from tests.unit.jobs.table_limits import bigint, table_limits, varchar

TIME = Column("slot_time", "datetime", Family.DATETIME, "datetime")
KEYS = tuple(varchar(name, 64) for name in ("key1", "key2", "key3"))
SUMS = SinkLimits(tables={"mysql.t": table_limits(TIME, *KEYS, bigint("indicate"))})
SOURCES = (bigint("source_partition"), bigint("source_offset"))
IDS = SinkLimits(
    tables={"mysql.t": table_limits(*SOURCES, varchar("id", 190), varchar("city", 190))}
)
REFUSED = "refused by mysql.t: too long"


def sums_of(*records: tuple[str, str]) -> SourceRecords:
    """Return records of two_sinks: each is a minute and key1."""
    common = {"key2": "b", "key3": "c", "indicate": 5}
    rows = [{"time": f"2026-01-07T12:{at}:30Z", "key1": key} | common for at, key in records]
    values = [json.dumps(row).encode() for row in rows]
    source = [Record(0, offset, None, value) for offset, value in enumerate(values)]
    return SourceRecords("t", source, {0: len(source)})


def refused_sum(minute: str, key: str, payload_characters: int | None = None) -> bytes:
    """Return the dead letter of a sum."""
    time = datetime(2026, 1, 7, 12, int(minute), tzinfo=UTC)
    row = {"key1": key, "key2": "b", "key3": "c", "indicate": 5}
    sent = {"id": "u1", "slot_time": f"2026-01-07T12:{minute}:00.000Z"} | row
    value = json.dumps(sent, separators=(",", ":")).encode()
    staged = {"s0": {"key": key.encode(), "value": value}, "s1": {"slot_time": time} | row}
    letter = dict(refused_letter(pa.RecordBatch.from_pylist([staged]), REFUSED))
    letter["payload"] = str(letter["payload"])[:payload_characters]
    return json.dumps(letter).encode()


def two_sinks_kinds(source: SourceRecords, *letters: bytes) -> list[str]:
    delivered = two_sinks.Delivered([], {}, letters, Counter(), SUMS)
    return [finding.kind for finding in two_sinks.compare(source, delivered).findings]


@pytest.mark.parametrize("characters", [65, 20_000, 22_000, 70_000])
def test_a_sum_whose_key_is_too_long_is_no_loss(characters: int) -> None:
    key = "a" * characters
    assert two_sinks_kinds(sums_of(("00", key)), refused_sum("00", key)) == []


def test_a_dead_letter_that_was_cut_excuses_no_other_sum() -> None:
    key = "a" * 22_000
    source = sums_of(("00", key), ("01", key), ("00", f"{key}b"))
    assert two_sinks_kinds(source, refused_sum("00", key)) == ["lost"]
    assert two_sinks_kinds(sums_of(("00", key)), refused_sum("01", key)) == ["lost", "wrong"]


def test_a_dead_letter_that_was_cut_excuses_no_sum_that_the_table_accepts() -> None:
    key = "a" * 64
    letters = refused_sum("00", key, 100)
    assert two_sinks_kinds(sums_of(("00", key)), letters) == ["lost", "wrong"]


def city_lookup_kinds(id_: str, *letters: dict[str, object]) -> list[str]:
    source = SourceRecords("t", [Record(0, 0, None, id_.encode())], {0: 1})
    texts = [json.dumps(letter).encode() for letter in letters]
    answers = city_lookup.Answers("cities")
    outcome = city_lookup.compare(source, [], [], texts, answers, IDS)
    return [finding.kind for finding in outcome.findings]


def unknown_id(id_: str, reason_characters: int | None = None) -> dict[str, object]:
    return {
        "reason": f"unknown: hash cities has no id {id_}"[:reason_characters],
        "payload": id_[:1000],
        "payload_sha256": hashlib.sha256(id_.encode()).hexdigest(),
        "source": {"topic": "t", "partition": 0, "offset": 0},
    }


def test_an_unknown_id_may_be_cut_in_the_reason() -> None:
    id_ = "1" * 5000
    assert city_lookup_kinds(id_, unknown_id(id_)) == []
    assert city_lookup_kinds(id_, unknown_id(id_, SHORT_REASON)) == []


def test_a_reason_that_is_cut_names_the_id_or_its_beginning() -> None:
    assert city_lookup_kinds("12", unknown_id("12", -1)) == ["lost", "wrong"]
    id_ = "1" * 5000
    other = unknown_id(id_) | {"reason": unknown_id("2" * 5000, 300)["reason"]}
    assert city_lookup_kinds(id_, other) == ["lost", "wrong"]


def refused_id(id_: str, offset: int = 0) -> dict[str, object]:
    """Return the dead letter of a row of city_lookup."""
    row = {"source_partition": 0, "source_offset": offset, "id": id_, "city": "Kyiv"}
    staged = {"s0": {"key": id_, "value": json.dumps(row)}, "s1": row}
    source = {"topic": "t", "partition": 0, "offset": offset}
    batch = pa.RecordBatch.from_pylist([staged | {SOURCE: json.dumps(source)}])
    return dict(refused_letter(batch, REFUSED))


@pytest.mark.parametrize("characters", [191, 70_000])
def test_a_row_whose_id_is_too_long_is_no_loss(characters: int) -> None:
    id_ = "1" * characters
    assert city_lookup_kinds(id_, refused_id(id_)) == []


def test_the_dead_letter_of_a_row_that_the_table_accepts_is_wrong() -> None:
    assert city_lookup_kinds("1", refused_id("1")) == ["wrong"]
    assert city_lookup_kinds("1" * 191, refused_id("1" * 70_000, 7)) == ["lost", "wrong"]
