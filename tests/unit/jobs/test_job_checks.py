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
from sluicegate_jobs.verification.limits import SinkLimits, TopicLimits
from sluicegate_jobs.verification.watermarks import EpochPlan, Watermarks
from sluicegate_jobs.word_count import verify as word_count_verify
from tests.unit.jobs.table_limits import bigint, table_limits, varchar


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
    return SourceRecords("t", source, {record.partition: 100 for record in source})


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


WORDS = SinkLimits(tables={"mysql.t": table_limits(varchar("word", 255), bigint("count"))})


def refused_count(word: str, count: int, *, cut: bool = False) -> bytes:
    payload = json.dumps([{"word": word, "count": count}])
    letter = {
        "reason": "refused by mysql.t: long",
        "payload": payload[:100] if cut else payload,
        "payload_sha256": hashlib.sha256(payload.encode()).hexdigest(),
    }
    return json.dumps(letter).encode()


def test_word_count_with_a_refused_word() -> None:
    """Its last count must be in the dead letters."""
    word = "x" * 300
    source = records(word.encode(), word.encode())

    def found(*letters: bytes) -> list[str]:
        return kinds(word_count_verify.compare(read(*source), {}, letters, WORDS))

    assert found(refused_count(word, 1), refused_count(word, 2)) == []
    assert found(refused_count(word, 1)) == ["lost"]
    assert found(refused_count(word, 2, cut=True)) == []
    assert found(refused_count(word, 1, cut=True)) == ["lost"]


def test_word_count_with_a_dead_letter_that_was_cut_does_not_excuse_another_word() -> None:
    source = records(b"x" * 300, b"z" * 400)
    letters = [refused_count("x" * 300, 1, cut=True)]
    outcome = word_count_verify.compare(read(*source), {}, letters, WORDS)
    assert kinds(outcome) == ["lost"]


def test_word_count_with_counts_that_are_buried_as_refused() -> None:
    outcome = word_count_verify.compare(read(*records(b"a")), {}, [refused_count("a", 1)], WORDS)
    assert kinds(outcome) == ["lost", "wrong"]


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


def test_kafka_to_kafka_with_records_that_get_the_time_of_writing() -> None:
    """Their own time is 0; Kafka's producers cannot write it."""
    source = [record._replace(timestamp_ms=0) for record in SOURCE[:2]]
    source.append(source[0]._replace(offset=2, timestamp_ms=7))
    sink = [SINK[0], SINK[1], SINK[0]._replace(offset=2, timestamp_ms=7)]
    assert kinds(kafka_to_kafka_verify.compare(read(*source), sink, (), UPPER)) == []
    swapped = [sink[1], sink[0], sink[2]]
    assert kinds(kafka_to_kafka_verify.compare(read(*source), swapped, (), UPPER)) == ["wrong"]
    repeated = [*sink, SINK[0]._replace(offset=3)]
    found = kinds(kafka_to_kafka_verify.compare(read(*source), repeated, (), UPPER))
    assert found == ["wrong"]


def test_kafka_to_kafka_ignores_values_that_it_cannot_compute() -> None:
    other = [SINK[0]._replace(value=b"?"), *SINK[1:]]
    assert kinds(kafka_to_kafka_verify.compare(read(*SOURCE), other, (), None)) == []


SAME_PARTITIONS = [r._replace(partition=0, offset=i) for i, r in enumerate(SINK)]


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (SAME_PARTITIONS, []),
        ([*SAME_PARTITIONS[:2], SAME_PARTITIONS[2]._replace(partition=1)], ["lost", "wrong"]),
        ([SAME_PARTITIONS[0], SAME_PARTITIONS[2], SAME_PARTITIONS[1]], ["wrong"]),
    ],
    ids=["exact", "partition", "order"],
)
def test_kafka_to_kafka_that_keeps_the_partitions(sink: list[Record], expected: list[str]) -> None:
    """It keeps the order of all records of a partition too."""
    outcome = kafka_to_kafka_verify.compare(read(*SOURCE), sink, (), UPPER, same_partition=True)
    assert kinds(outcome) == expected


@pytest.mark.parametrize(
    ("record_bytes", "reason", "expected"),
    [
        (200, "too large", []),
        (1000, "too large", ["wrong"]),
        (1000, "too far ahead (message.timestamp.after.max.ms)", []),
    ],
)
def test_kafka_to_kafka_with_a_record_that_the_sink_refused(
    record_bytes: int, reason: str, expected: list[str]
) -> None:
    """Its dead letter names the record, so the record itself is judged by the topic's limit."""
    refused = {"source": {"topic": "t", "partition": 0, "offset": 2}, "payload_of": "staged row"}
    refused |= {"reason": f"refused by kafka.s: {reason}", "payload": "[{"}
    limits = SinkLimits({"kafka.s": TopicLimits(record_bytes)})
    letters = [json.dumps(refused).encode()]
    outcome = kafka_to_kafka_verify.compare(read(*SOURCE), SINK[:2], letters, UPPER, limits)
    assert kinds(outcome) == expected


@pytest.mark.parametrize(("offsets", "expected"), [((2, 2), ["duplicated"]), ((2, 99), ["wrong"])])
def test_kafka_to_kafka_with_dead_letters_that_were_repeated_or_invented(
    offsets: tuple[int, int], expected: list[str]
) -> None:
    limits, letters = SinkLimits({"kafka.s": TopicLimits(200)}), []
    for offset in offsets:
        source = {"topic": "t", "partition": 0, "offset": offset}
        refused = {"source": source, "payload_of": "staged row", "payload": "[{"}
        refused |= {"reason": "refused by kafka.s: too large"}
        letters.append(json.dumps(refused).encode())
    outcome = kafka_to_kafka_verify.compare(read(*SOURCE), SINK[:2], letters, UPPER, limits)
    assert kinds(outcome) == expected


def test_kafka_to_kafka_with_a_record_whose_transformation_gives_null() -> None:
    """Only the job knows its transformation, so the dead letter cannot be judged."""
    letters = [letter(SOURCE[2], "unparsed: the transformation gives null")]
    outcome = kafka_to_kafka_verify.compare(read(*SOURCE), SINK[:2], letters, None)
    assert kinds(outcome) == []
    assert outcome.checked["dead letters that cannot be judged any more"] == 1


@pytest.mark.parametrize(("asked", "has", "expected"), [(0, 0, ["wrong"]), (5, 4, ["wrong"])])
def test_kafka_to_kafka_with_a_dead_letter_about_a_partition_that_exists(
    asked: int, has: int, expected: list[str]
) -> None:
    assert judged_partition(0, asked, has) == expected


def test_kafka_to_kafka_with_a_record_of_a_partition_that_the_sink_does_not_have() -> None:
    assert judged_partition(5, 5, 4) == []


def judged_partition(partition: int, asked: int, has: int) -> list[str]:
    """Return what `verify` says of a record whose dead letter names a partition."""
    record = SOURCE[2]._replace(partition=partition)
    source = {"topic": "t", "partition": partition, "offset": record.offset}
    reason = (
        f"refused by kafka.s: the record asks for partition {asked} and topic s has {has}, from 0"
    )
    refused = {"source": source, "payload_of": "staged row", "reason": reason, "payload": "[{"}
    limits = SinkLimits({"kafka.s": TopicLimits(1000)})
    letters = [json.dumps(refused).encode()]
    outcome = kafka_to_kafka_verify.compare(
        read(*SOURCE[:2], record), SAME_PARTITIONS[:2], letters, UPPER, limits, same_partition=True
    )
    return kinds(outcome)


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


def test_two_sinks_with_sums_that_are_buried_as_refused() -> None:
    row = json.loads(one("q", 6))
    payload = json.dumps([{"key": "a", "value": json.dumps(row)}, row])
    letters = [json.dumps({"reason": "refused by mysql.t: x", "payload": payload}).encode()]
    columns = [*(varchar(name, 64) for name in ("key1", "key2", "key3")), bigint("indicate")]
    limits = SinkLimits(tables={"mysql.t": table_limits(*columns)})
    delivered = Delivered([], {}, letters, Counter(), limits)
    assert kinds(two_sinks_verify.compare(read(*records(ROW, ROW)), delivered)) == ["wrong"]


@pytest.mark.parametrize(
    "value",
    [
        ROW[:-2],
        b"[]",
        b"{}",
        ROW.replace(b"31Z", b"31"),
        *(
            ROW.replace(b"3}", value)
            for value in (b"3.5}", b"true}", b'"3"}', b"9223372036854775808}")
        ),
    ],
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
    letters = [json.dumps({"reason": "unparsed: x", "payload_sha256": digest}).encode()]
    assert kinds(batch_verify.compare(lines, rows, letters)) == expected
    assert "lost" in kinds(batch_verify.compare(lines, rows, []))


def test_orders_batch_with_a_dead_letter_for_another_reason() -> None:
    digest = hashlib.sha256(b"{").hexdigest()
    letter = json.dumps({"reason": "refused by mysql.t: x", "payload_sha256": digest}).encode()
    assert kinds(batch_verify.compare([b"{"], [], [letter])) == ["lost", "wrong"]


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


LATE_MS = int(datetime(2026, 1, 7, 12, 0, 5, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("watermark_ms", "expected"),
    [(LATE_MS, []), (LATE_MS - 1, ["wrong"]), (LATE_MS + 10_000, ["wrong"])],
    ids=["late", "in time", "a watermark that jumped"],
)
def test_orders_stream_judges_late_dead_letters(watermark_ms: int, expected: list[str]) -> None:
    """Not by the newest order, but by the watermark of the epoch before its own."""
    newest = order("9", time="2026-01-07T12:00:07Z")
    source = records(order("1"), order("2.5"), newest, order("9", time="2026-01-07T12:00:02Z"))
    plans = [EpochPlan(0, {0: 3}, 0), EpochPlan(1, {0: 3}, watermark_ms)]
    watermarks = Watermarks([*plans, EpochPlan(2, {0: 4}, watermark_ms)])
    second = TOPIC_ROW % 1
    second = second.replace(b"00.000Z", b"05.000Z").replace(b"2.50", b"9").replace(b"1.00", b"9")
    nine = (datetime(2026, 1, 7, 12, 0, 5), "ann", 1, Decimal(9), Decimal(9))  # noqa: DTZ001 - as MySQL
    outcome = stream_verify.compare(
        SourceRecords("t", source, {0: 4}, watermarks),
        [TOPIC_ROW % 2, second],
        [WINDOW, nine],
        [letter(source[3], "late: so")],
    )
    assert sorted({finding.kind for finding in outcome.findings} - {"lost"}) == expected


def test_a_nested_row_in_a_dead_letter_does_not_end_the_check() -> None:
    """A sink may refuse whatever the source holds."""
    row = {"value": "[" * 100_000}
    letter_ = {"reason": "refused by kafka.s: so", "payload": json.dumps([row])}
    outcome = kafka_to_kafka_verify.compare(
        read(*SOURCE), SINK, [json.dumps(letter_).encode()], UPPER
    )
    assert outcome.checked["dead letters"] == 1
