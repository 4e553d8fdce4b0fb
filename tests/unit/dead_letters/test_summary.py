"""Dead letters by reason."""

import json

from sluicegate.dead_letters.summary import Example, by_reason
from sluicegate.dead_letters.topic import DeadLetter, parse_dead_letter
from sluicegate.sinks.kafka.reader import Position, Record


def letter(offset: int, reason: str, payload: str = "row") -> DeadLetter:
    """Return a dead letter whose time is its offset."""
    value = json.dumps({"reason": reason, "payload": payload}).encode()
    return parse_dead_letter("dead", Record(0, offset, None, value, (), offset))


def test_reasons_that_differ_in_numbers_are_one_and_the_most_frequent_is_first() -> None:
    letters = [letter(0, "broken"), letter(1, "late: 5 s"), letter(2, "late: 60 s")]
    late, broken = by_reason(letters, 1, replayed=[Position("dead", 0, 1)])
    assert (late.group, late.count, late.replayed, late.newest_ms) == ("late: # s", 2, 1, 2)
    assert (broken.group, broken.count, broken.replayed) == ("broken", 1, 0)


def test_the_examples_are_the_newest_in_whatever_order_they_are_read() -> None:
    (late,) = by_reason([letter(at, "late") for at in (3, 1, 2)], 2)
    assert late.examples == [Example(2, "0/2", "'row'"), Example(3, "0/3", "'row'")]
    (late,) = by_reason([letter(1, "late")], 0)
    assert late.examples == []


def test_a_payload_is_redacted_before_it_is_cut() -> None:
    payload = "x" * 90 + "://root:hunter2-and-more@db"
    (late,) = by_reason(
        [letter(1, "late", payload)], 1, redact=lambda text: text.replace("hunter2-and-more", "")
    )
    assert "hunter" not in late.examples[0].text
