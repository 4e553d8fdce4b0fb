"""A stream of bytes becomes lines, however it is cut into pieces."""

from __future__ import annotations

import hashlib
import random

import pytest

from sluicegate.spark.socket_lines import LineCutter
from sluicegate.storage.receipts import Line

LIMIT = 10


def cut(*pieces: bytes) -> list[Line]:
    """Return the lines of a connection that its peer closes after these pieces."""
    cutter = LineCutter(LIMIT)
    lines = [line for piece in pieces for line in cutter.feed(piece, 1)]
    return lines + cutter.close(1)


def test_a_line_is_every_byte_before_its_line_feed() -> None:
    assert [line.content for line in cut(b"a\r\n\n\xff\xfe\n")] == [b"a\r", b"", b"\xff\xfe"]


def test_what_comes_after_the_last_line_feed_is_a_line_when_the_peer_closes() -> None:
    assert [line.content for line in cut(b"a\nb")] == [b"a", b"b"]


def test_nothing_after_the_last_line_feed_is_no_line() -> None:
    assert [line.content for line in cut(b"a\n")] == [b"a"]


def test_a_line_of_exactly_the_limit_is_whole_and_a_byte_more_is_overlong() -> None:
    whole, over = cut(b"x" * LIMIT + b"\n" + b"x" * (LIMIT + 1) + b"\n")
    assert whole.broken is None
    assert over.broken == "overlong: the line has 11 bytes, the limit is 10"


def test_of_an_overlong_line_the_begin_the_length_and_the_hash_of_all_are_kept() -> None:
    (line,) = cut(b"0123456789", b"0123456789", b"01\n")
    assert (line.content, line.length) == (b"0123456789", 22)
    assert line.sha256 == hashlib.sha256(b"0123456789012345678901").hexdigest()


def test_a_line_after_an_overlong_one_is_whole() -> None:
    assert [line.broken for line in cut(b"x" * 50, b"x\nnext\n")][1] is None


def test_a_line_that_a_broken_connection_tore_says_so() -> None:
    cutter = LineCutter(LIMIT)
    cutter.feed(b"half", 1)
    (line,) = cutter.close(1, "reset")
    assert (line.content, line.broken) == (b"half", "torn: reset")


@pytest.mark.parametrize("seed", range(20))
def test_the_lines_are_the_same_wherever_the_stream_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    stream = b"".join(bytes(chance.choices(b"ab\n", k=chance.randrange(30))) for _ in range(20))
    pieces, at = [], 0
    while at < len(stream):
        size = chance.randrange(1, 15)
        pieces.append(stream[at : at + size])
        at += size
    assert cut(*pieces) == cut(stream)
