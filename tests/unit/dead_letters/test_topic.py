"""A record of the dead letters' topic is read as far as it can be."""

from __future__ import annotations

import hashlib

import pytest

from sluicegate.dead_letters.summary import by_reason
from sluicegate.dead_letters.topic import UNREADABLE, parse_dead_letter, record_to_replay
from sluicegate.sinks.kafka.reader import Position, Record

PAYLOAD = b"Bogot\xe1"


def letter_of(value: bytes) -> Record:
    return Record(partition=0, offset=7, key=None, value=value)


def test_a_payload_that_is_not_utf_8_does_not_hide_the_reason_and_the_source() -> None:
    """Spark writes the bytes of a string column as they are."""
    digest = hashlib.sha256(PAYLOAD).hexdigest().encode()
    value = (
        b'{"reason": "no city", "payload": "%b", "payload_sha256": "%b", '
        b'"source": {"topic": "clicks", "partition": 1, "offset": 5}}'
    ) % (PAYLOAD, digest)
    letter = parse_dead_letter("dead", letter_of(value))
    assert (letter.reason, letter.payload) == ("no city", "Bogot\ufffd")
    assert letter.source == Position("clicks", 1, 5)
    original = Record(partition=1, offset=5, key=None, value=PAYLOAD)
    assert record_to_replay(letter, original) is original
    assert "does not have all of its bytes" in str(record_to_replay(letter, None))


def test_a_record_that_is_no_dead_letter_is_unreadable() -> None:
    assert parse_dead_letter("dead", letter_of(b"\xff\xfe")).reason == UNREADABLE


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 100_000,
        b'{"reason": "unparsed", "payload": {"a": 1}}',
        b'{"reason": "unparsed", "payload": "x", "payload_sha256": 7}',
    ],
    ids=["nested", "payload", "digest"],
)
def test_a_record_of_another_form_is_unreadable_and_stops_neither_list_nor_replay(
    value: bytes,
) -> None:
    """A job may send broken records to its dead-letter output as they are."""
    letter = parse_dead_letter("dead", letter_of(value))
    (reason,) = by_reason([letter], examples=2)
    assert (letter.reason, reason.count) == (UNREADABLE, 1)
    assert "names no record" in str(record_to_replay(letter, None))
