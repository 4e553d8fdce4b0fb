"""The epoch record: its stored form, and the chain of markers in it."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import EpochLogBroken
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.protocol.record import (
    MAGIC,
    SEAL_MAGIC,
    Chunk,
    EpochRecord,
    EventTime,
    Seal,
    SinkBinding,
    decode,
    decode_seal,
    encode,
    encode_seal,
    parse_sinks,
)

names = st.sampled_from(["kafka", "mysql", "dead letters", "ß/\u2028"])
parts = st.integers(0, 3)
markers = st.builds(Marker, epoch=st.integers(-1, 9), attempt=st.text(max_size=4))
numbers = st.integers(-(2**53), 2**53)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    data, inline = draw(st.binary(max_size=20)), draw(st.booleans())
    return Chunk(
        sink=draw(names),
        part=draw(parts),
        order=(draw(parts), draw(parts)),
        rows=draw(st.integers(0, 9)),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        inline=data if inline else None,
        name=None if inline else draw(st.text(max_size=9)),
    )


records = st.builds(
    EpochRecord,
    lineage=st.text(max_size=5),
    job=st.text(max_size=5),
    epoch=st.integers(0, 2**40),
    attempt=st.text(min_size=1, max_size=5),
    delivery=st.sampled_from(["exactly-once", "at-least-once", "at-most-once"]),
    offsets_digest=st.text(max_size=5),
    sinks=st.dictionaries(
        names, st.builds(SinkBinding, names, names, st.integers(1, 9), names), max_size=3
    ),
    prev=st.dictionaries(names, st.dictionaries(parts, markers, max_size=3), max_size=3),
    chunks=st.lists(chunks(), max_size=5).map(tuple),
    event_times=st.lists(
        st.builds(
            EventTime, numbers, numbers, st.floats(allow_nan=False, allow_infinity=False), numbers
        ),
        max_size=2,
    ).map(tuple),
    decided_at_ms=st.integers(0, 2**45),
    traceparent=st.text(max_size=5),
    counts=st.dictionaries(names, numbers, max_size=2),
)


def small(**changes: Any) -> EpochRecord:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {
        "lineage": "L",
        "job": "j",
        "epoch": 7,
        "attempt": "a",
        "delivery": "exactly-once",
        "offsets_digest": "d",
        "sinks": {"s": SinkBinding("kafka", "topic t", 2, "L.s")},
        "prev": {},
    }
    return EpochRecord(**(fields | changes))


def chunk(sink: str, part: int, *, task: int = 0, data: bytes = b"rows") -> Chunk:
    digest = hashlib.sha256(data).hexdigest()
    return Chunk(sink, part, (task, 0), 1, len(data), digest, inline=data)


@given(records)
def test_a_decoded_record_equals_the_encoded_one(record: EpochRecord) -> None:
    assert decode(encode(record)) == record


def test_a_record_of_a_version_without_clusters_is_decoded() -> None:
    """Such records stay in checkpoints, manifests of savepoints and ancestries."""
    earlier = {"kind": "kafka", "target": "topic t", "parts": 2, "marker_key": "L.s"}
    assert parse_sinks({"s": earlier}) == small().sinks


def test_an_unknown_cluster_may_be_any_and_another_one_is_another_sink() -> None:
    unknown = small().sinks["s"]
    ours, other = replace(unknown, cluster="c"), replace(unknown, cluster="other")
    assert unknown.is_same_sink(ours)
    assert ours.is_same_sink(unknown)
    assert not ours.is_same_sink(other)
    assert not ours.is_same_sink(replace(ours, target="topic u"))
    assert not ours.is_same_sink(None)


@given(records)
def test_the_same_record_has_the_same_bytes(record: EpochRecord) -> None:
    """A PUT that is retried after a lost reply must send the same object (rule 1)."""
    assert encode(record) == encode(decode(encode(record)))


@given(records)
def test_the_order_of_the_sinks_is_preserved(record: EpochRecord) -> None:
    """They are applied in this order, also in a replay."""
    assert list(decode(encode(record)).sinks) == list(record.sinks)


@given(records, st.data())
def test_a_record_with_a_changed_byte_is_rejected(record: EpochRecord, data: st.DataObject) -> None:
    stored = bytearray(encode(record))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(EpochLogBroken):
        decode(bytes(stored))


@given(records, st.data())
def test_a_torn_record_is_rejected(record: EpochRecord, data: st.DataObject) -> None:
    stored = encode(record)
    with pytest.raises(EpochLogBroken):
        decode(stored[: data.draw(st.integers(0, len(stored) - 1))])


@given(records, st.binary(min_size=1, max_size=40))
def test_bytes_after_the_record_are_rejected(record: EpochRecord, more: bytes) -> None:
    with pytest.raises(EpochLogBroken):
        decode(encode(record) + more)


def signed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def with_digest(header: object) -> bytes:
    packed = json.dumps(header).encode()
    return signed(MAGIC + struct.pack(">Q", len(packed)) + packed)


@pytest.mark.parametrize("content", [b"", b"short", struct.pack(">Q", 4) + b"{no}"])
def test_an_intact_object_without_a_header_is_rejected(content: bytes) -> None:
    with pytest.raises(
        EpochLogBroken, match=r"^an epoch record is torn.*\n.*its decision is unknown"
    ):
        decode(signed(MAGIC + content))


def test_a_record_without_its_magic_line_is_rejected() -> None:
    with pytest.raises(EpochLogBroken):
        decode(signed(encode(small())[len(MAGIC) : -32]))


@pytest.mark.parametrize("content", [b"{no}", b"[]", b'{"epoch": 1}'])
def test_an_intact_seal_of_another_format_is_rejected(content: bytes) -> None:
    with pytest.raises(
        EpochLogBroken, match=r"^a seal is torn.*\n.*nothing can be decided after it"
    ):
        decode_seal(signed(SEAL_MAGIC + content))


def test_a_seal_without_its_magic_line_is_rejected() -> None:
    stored = encode_seal(Seal("id", "L", "j", 3, "moved", 0))
    with pytest.raises(EpochLogBroken):
        decode_seal(signed(stored[len(SEAL_MAGIC) : -32]))


@pytest.mark.parametrize("header", [[], {}, {"chunks": [{}]}, "text", None])
def test_an_intact_record_of_another_format_is_rejected(header: object) -> None:
    with pytest.raises(EpochLogBroken, match="another version"):
        decode(with_digest(header))


def test_an_unknown_field_is_rejected() -> None:
    stored = encode(small())
    start = len(MAGIC) + 8
    header = json.loads(stored[start:-32]) | {"kind": "sealed"}
    with pytest.raises(EpochLogBroken, match="another version"):
        decode(with_digest(header))


def test_inline_bytes_that_differ_from_the_staged_ones_are_rejected() -> None:
    """The record's own digest shows only that the record is intact."""
    wrong = Chunk("s", 0, (0, 0), 1, 4, hashlib.sha256(b"else").hexdigest(), inline=b"rows")
    with pytest.raises(EpochLogBroken, match="other bytes"):
        decode(encode(small(chunks=(wrong,))))


@pytest.mark.parametrize("stored", [b"", b"row", b"rows!", b"ROWS"])
def test_a_staged_object_with_other_bytes_is_rejected(stored: bytes) -> None:
    with pytest.raises(EpochLogBroken):
        chunk("s", 0).verify(stored)


@pytest.mark.parametrize(
    ("name", "words"), [("staging/7", "chunk staging/7"), (None, "chunk inline")]
)
def test_the_error_names_the_chunk(name: str | None, words: str) -> None:
    with pytest.raises(EpochLogBroken, match=words):
        replace(chunk("s", 0), name=name).verify(b"else")


def test_a_staged_object_with_its_own_bytes_is_accepted() -> None:
    assert chunk("s", 0).verify(b"rows") == b"rows"


def test_chunks_are_written_in_the_order_of_their_tasks() -> None:
    record = small(chunks=(chunk("s", 0, task=2), chunk("s", 1), chunk("s", 0, task=1)))
    assert [c.order[0] for c in record.part_chunks("s", 0)] == [1, 2]


def test_a_part_without_rows_keeps_its_marker_in_the_chain() -> None:
    before = Marker(3, "x")
    record = small(prev={"s": {0: before, 1: before}}, chunks=(chunk("s", 1),))
    assert record.chain() == {"s": {0: before, 1: record.marker}}
    assert record.parts_with_rows("s") == (1,)


def test_a_part_that_never_had_rows_expects_no_marker() -> None:
    assert small().prev_of("s", 0) == NO_MARKER
    assert small().prev_of("unknown", 5) == NO_MARKER


def test_the_chain_of_an_empty_epoch_is_the_chain_before_it() -> None:
    prev = {"s": {0: Marker(3, "x")}}
    assert small(prev=prev).chain() == prev


def test_computing_the_chain_does_not_change_the_record() -> None:
    record = small(prev={"s": {0: Marker(3, "x")}}, chunks=(chunk("s", 0),))
    record.chain()
    assert record.prev_of("s", 0) == Marker(3, "x")


@given(st.lists(st.sets(st.tuples(names, parts)), max_size=8))
def test_the_chain_has_the_last_marker_of_each_part(history: list[set[tuple[str, int]]]) -> None:
    """From record to record, `prev` has exactly the last epoch with rows of each part."""
    last: dict[tuple[str, int], Marker] = {}
    before: EpochRecord | None = None
    for epoch, moved in enumerate(history):
        made = tuple(chunk(sink, part) for sink, part in sorted(moved))
        prev = before.chain() if before else {}
        record = small(epoch=epoch, attempt=f"a{epoch}", prev=prev, chunks=made)
        for sink in ("kafka", "mysql", "dead letters"):
            for part in range(4):
                assert record.prev_of(sink, part) == last.get((sink, part), NO_MARKER)
        last |= dict.fromkeys(moved, record.marker)
        before = decode(encode(record))


def test_rows_are_counted_by_sink() -> None:
    record = small(chunks=(chunk("s", 0), chunk("s", 1), chunk("t", 0)))
    assert (record.rows("s"), record.rows("t"), record.rows("u")) == (2, 1, 0)
