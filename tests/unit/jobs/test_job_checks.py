"""Verification of the packaged jobs finds what is lost, repeated or wrong."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Record
from sluicegate_jobs.kafka_to_kafka import verify as kafka_to_kafka_verify
from sluicegate_jobs.orders import batch_verify, stream_verify
from sluicegate_jobs.orders.expected import Order, read_order
from sluicegate_jobs.two_sinks import verify as two_sinks_verify
from sluicegate_jobs.two_sinks.verify import Delivered, read_row
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.word_count import verify as word_count_verify


def kinds(outcome: Verification) -> list[str]:
    return [finding.kind for finding in outcome.findings]


def letter(record: Record, reason: str) -> bytes:
    digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()
    source = {"topic": "t", "partition": record.partition, "offset": record.offset}
    return json.dumps({"reason": reason, "payload_sha256": digest, "source": source}).encode()


def records(*values: bytes | None) -> list[Record]:
    return [Record(0, offset, None, value) for offset, value in enumerate(values)]


def read(*source: Record) -> SourceRecords:
    """Return a source that was read completely."""
    return SourceRecords("t", source, {0: 100})


# --- word_count -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"a": 2, "b": 1}, []),
        ({"a": 2}, ["lost"]),
        ({"a": 1, "b": 1}, ["lost"]),
        ({"a": 4, "b": 1}, ["duplicated"]),
        ({"a": 2, "b": 1, "c": 1}, ["wrong"]),
    ],
)
def test_word_count(table: dict[str, int], expected: list[str]) -> None:
    outcome = word_count_verify.compare(read(*records(b"a b\t", b"", b" a")), table, ())
    assert kinds(outcome) == expected


def test_word_count_with_unread_records() -> None:
    """Words that no epoch has read are in no row."""
    source = SourceRecords("t", records(b"a", b"b"), {0: 1})
    assert kinds(word_count_verify.compare(source, {"a": 1}, ())) == []


def test_word_count_with_lines_that_are_not_text() -> None:
    source = records(b"a \xff", None)
    letters = [letter(source[0], "unparsed: so"), letter(source[1], "empty: so")]
    assert kinds(word_count_verify.compare(read(*source), {}, letters)) == []
    assert kinds(word_count_verify.compare(read(*source), {}, letters[:1])) == ["lost"]
    assert kinds(word_count_verify.compare(read(*source), {}, [*letters, letters[0]])) == [
        "duplicated"
    ]


def test_word_count_with_a_refused_word() -> None:
    """Its last count must be in the dead letters."""
    word = "x" * 300
    source = records(word.encode(), word.encode())

    def refused(count: int) -> bytes:
        payload = json.dumps([{"word": word, "count": count}])
        return json.dumps({"reason": "refused by mysql.t: long", "payload": payload}).encode()

    compare = word_count_verify.compare
    assert kinds(compare(read(*source), {}, [refused(1), refused(2)])) == []
    assert kinds(compare(read(*source), {}, [refused(1)])) == ["lost"]


# --- kafka_to_kafka -------------------------------------------------------------------------

UPPER = kafka_to_kafka_verify.KNOWN["upper(value)"]
SOURCE = [
    Record(0, 0, b"k", b"one", (("h", b"1"),), 10),
    Record(0, 1, b"k", None, (), 11),
    Record(0, 2, None, b"two", (), 12),
]
SINK = [
    Record(1, 0, b"k", b"ONE", (("h", b"1"),), 10),
    Record(1, 1, b"k", None, (), 11),
    Record(0, 0, None, b"TWO", (), 12),
]


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (SINK, []),
        (SINK[1:], ["lost"]),
        ([*SINK, SINK[0]], ["duplicated"]),
        ([SINK[1], SINK[0], SINK[2]], ["wrong"]),
        ([SINK[0], SINK[1]._replace(partition=0), SINK[2]], ["wrong"]),
        ([SINK[0]._replace(headers=()), *SINK[1:]], ["lost", "wrong"]),
        ([SINK[0]._replace(timestamp_ms=9), *SINK[1:]], ["lost", "wrong"]),
        ([SINK[0]._replace(value=b"one"), *SINK[1:]], ["lost", "wrong"]),
    ],
    ids=["exact", "lost", "twice", "order", "partitions", "headers", "time", "value"],
)
def test_kafka_to_kafka(sink: list[Record], expected: list[str]) -> None:
    outcome = kafka_to_kafka_verify.compare(read(*SOURCE), sink, (), UPPER)
    assert kinds(outcome) == expected


def test_kafka_to_kafka_ignores_values_that_it_cannot_compute() -> None:
    other = [SINK[0]._replace(value=b"?"), *SINK[1:]]
    assert kinds(kafka_to_kafka_verify.compare(read(*SOURCE), other, (), None)) == []


# --- two_sinks ------------------------------------------------------------------------------

ROW = b'{"time": "2026-01-07T12:00:31Z", "key1": "a", "key2": "b", "key3": "c", "indicate": 3}'
KEY = (datetime(2026, 1, 7, 12, tzinfo=UTC), "a", "b", "c")


def one(name: str, indicate: int) -> bytes:
    row = {"id": name, "slot_time": "2026-01-07T12:00:00.000Z", "indicate": indicate}
    return json.dumps(row | {"key1": "a", "key2": "b", "key3": "c"}).encode()


@pytest.mark.parametrize(
    ("kafka", "mysql", "decided", "expected"),
    [
        ([one("x", 3), one("y", 3)], 6, [one("x", 3), one("y", 3)], []),
        ([one("x", 3), one("y", 3)], 9, [one("x", 3), one("y", 3)], ["wrong"]),
        (
            [one("x", 3), one("z", 3)],
            6,
            [one("x", 3), one("y", 3)],
            ["lost", "undecided-but-visible"],
        ),
        (
            [one("x", 3), one("x", 3)],
            6,
            [one("x", 3)],
            ["duplicated", "undecided-but-visible"],
        ),
        ([one("x", 3)], 6, [one("x", 3)], ["wrong"]),
    ],
    ids=["exact", "added twice", "another UUID", "the same UUID twice", "half"],
)
def test_two_sinks(
    kafka: list[bytes], mysql: int, decided: list[bytes], expected: list[str]
) -> None:
    delivered = Delivered(kafka, {KEY: mysql}, (), Counter(decided))
    assert kinds(two_sinks_verify.compare(read(*records(ROW, ROW)), delivered)) == expected


@pytest.mark.parametrize(
    "value", [ROW[:-2], b"[]", b"{}", ROW.replace(b"31Z", b"31"), ROW.replace(b"3}", b"3.5}")]
)
def test_two_sinks_with_invalid_rows(value: bytes) -> None:
    assert read_row(value) == "unparsed"


# --- orders ---------------------------------------------------------------------------------


def order(amount: str, *, user: str = "ann", time: str = "2026-01-07T12:00:01.5Z") -> bytes:
    return f'{{"id": "o", "user": "{user}", "time": "{time}", "amount": {amount}}}'.encode()


def test_orders_are_parsed_exactly() -> None:
    time = datetime(2026, 1, 7, 12, 0, 1, 500_000, tzinfo=UTC)
    assert read_order(order("0.10")) == Order("ann", time, Decimal("0.10"))


@pytest.mark.parametrize(
    "line",
    [
        order("0.105"),
        order("NaN"),
        order("1", user="a b"),
        order("1", time="2026-02-30T00:00:00Z"),
        order("1", time="yesterday"),
        order("1")[:-1],
        b"5",
    ],
)
def test_invalid_orders(line: bytes) -> None:
    assert read_order(line) == "unparsed"


ANN = ("ann", 2, Decimal("3.50"), Decimal("2.50"), Decimal("1.00"))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([ANN], []),
        ([], ["lost"]),
        ([(*ANN[:4], Decimal(0))], ["wrong"]),
        ([ANN, ("bob", *ANN[1:])], ["wrong"]),
    ],
)
def test_orders_batch(rows: list[tuple[object, ...]], expected: list[str]) -> None:
    lines = [order("1"), order("2.5"), b"{"]
    digest = hashlib.sha256(b"{").hexdigest()
    letters = [json.dumps({"payload_sha256": digest}).encode()]
    assert kinds(batch_verify.compare(lines, rows, letters)) == expected
    assert "lost" in kinds(batch_verify.compare(lines, rows, []))


WINDOW = (datetime(2026, 1, 7, 12), "ann", 2, Decimal("2.50"), Decimal("1.00"))  # noqa: DTZ001 - as MySQL returns it
TOPIC_ROW = (
    b'{"window_start":"2026-01-07T12:00:00.000Z","user":"ann",'
    b'"orders":%d,"largest":2.50,"smallest":1.00}'
)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ([TOPIC_ROW % 1, TOPIC_ROW % 2], []),
        ([TOPIC_ROW % 2, TOPIC_ROW % 2], ["duplicated"]),
        ([TOPIC_ROW % 1], ["wrong"]),
        ([], ["lost"]),
    ],
)
def test_orders_stream(topic: list[bytes], expected: list[str]) -> None:
    source = records(order("1"), order("2.5"))
    outcome = stream_verify.compare(read(*source), topic, [WINDOW], ())
    assert kinds(outcome) == expected


def test_orders_stream_checks_late_dead_letters() -> None:
    """An order within the lateness of the newest order cannot have been late."""
    source = records(order("1"), order("2.5"), order("9", time="2026-01-07T12:00:02Z"))
    letters = [letter(source[2], "late: so")]
    outcome = stream_verify.compare(read(*source), [TOPIC_ROW % 2], [WINDOW], letters)
    assert kinds(outcome) == ["wrong"]
