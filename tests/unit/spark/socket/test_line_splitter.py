"""LineSplitter: the lines do not depend on how the stream is cut into pieces."""

from __future__ import annotations

import hashlib
import random

import pytest

from sluicegate.spark.socket.receiver import LineSplitter
from sluicegate.spark.socket.write_ahead_log import Line

LIMIT = 10


def split(*pieces: bytes) -> list[Line]:
    """Return the lines of a connection that the peer closes after these pieces."""
    splitter = LineSplitter(LIMIT)
    lines = [line for piece in pieces for line in splitter.feed(piece, 1)]
    return lines + splitter.close(1)


def test_a_line_is_every_byte_before_its_line_feed() -> None:
    assert [line.content for line in split(b"a\r\n\n\xff\xfe\n")] == [b"a\r", b"", b"\xff\xfe"]


def test_the_rest_after_the_last_line_feed_is_a_line_when_the_peer_closes() -> None:
    assert [line.content for line in split(b"a\nb")] == [b"a", b"b"]


def test_an_empty_rest_is_not_a_line() -> None:
    assert [line.content for line in split(b"a\n")] == [b"a"]


def test_a_line_of_exactly_the_limit_is_whole() -> None:
    whole, over = split(b"x" * LIMIT + b"\n" + b"x" * (LIMIT + 1) + b"\n")
    assert whole.broken is None
    assert over.broken == "overlong: the line has 11 bytes, the limit is 10"


def test_an_overlong_line_has_its_start_and_the_length_and_hash_of_the_whole() -> None:
    (line,) = split(b"0123456789", b"0123456789", b"01\n")
    assert (line.content, line.length) == (b"0123456789", 22)
    assert line.sha256 == hashlib.sha256(b"0123456789012345678901").hexdigest()


def test_a_line_after_an_overlong_one_is_whole() -> None:
    assert [line.broken for line in split(b"x" * 50, b"x\nnext\n")][1] is None


def test_a_line_torn_by_a_broken_connection_has_the_reason() -> None:
    splitter = LineSplitter(LIMIT)
    splitter.feed(b"half", 1)
    (line,) = splitter.close(1, "reset")
    assert (line.content, line.broken) == (b"half", "torn: reset")


@pytest.mark.parametrize("seed", range(20))
def test_the_lines_are_the_same_wherever_the_stream_is_split(seed: int) -> None:
    chance = random.Random(seed)
    stream = b"".join(bytes(chance.choices(b"ab\n", k=chance.randrange(30))) for _ in range(20))
    pieces, at = [], 0
    while at < len(stream):
        size = chance.randrange(1, 15)
        pieces.append(stream[at : at + size])
        at += size
    assert split(*pieces) == split(stream)
