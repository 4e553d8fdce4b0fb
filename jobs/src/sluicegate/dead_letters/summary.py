"""Dead letters by reason: how many, and the newest of each as examples."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sluicegate.dead_letters.topic import DeadLetter
from sluicegate.sinks.kafka.reader import Position

_CHARACTERS = 100
"""How much of a payload an example has."""
_REDACTED = 10_000
"""How much of it is redacted, so that what is cut from that is whole."""


class Example(NamedTuple):
    """A dead letter for people: when it was written, its partition/offset, and what it has."""

    time_ms: int
    address: str
    text: str


@dataclass
class Reason:
    """The dead letters of a reason, whose numbers are left out: equal causes are one reason.

    Args:
        group: the reason.
        count: how many there are.
        replayed: how many of them have been replayed.
        newest_ms: when the newest one was written, ms since 1970.
        examples: the newest ones, oldest first.
    """

    group: str
    count: int = 0
    replayed: int = 0
    newest_ms: int = 0
    examples: list[Example] = field(default_factory=list)


def by_reason(
    letters: Iterable[DeadLetter],
    examples: int,
    *,
    replayed: Container[Position] = (),
    redact: Callable[[str], str] = str,
) -> list[Reason]:
    """Return the reasons of dead letters, the most frequent first.

    Args:
        letters: in any order: partitions are read side by side.
        examples: how many of each reason.
        replayed: the addresses of those that have been replayed.
        redact: changes a payload before it is cut.
    """
    found: dict[str, Reason] = {}
    for letter in letters:
        reason = found.setdefault(letter.group, Reason(letter.group))
        reason.count += 1
        reason.replayed += letter.position in replayed
        reason.newest_ms = max(reason.newest_ms, letter.time_ms)
        if examples:
            example = Example(letter.time_ms, address(letter), _excerpt(letter, redact))
            by_time = sorted([*reason.examples, example], key=lambda each: each.time_ms)
            reason.examples = by_time[-examples:]
    return sorted(found.values(), key=lambda reason: -reason.count)


def address(letter: DeadLetter) -> str:
    """Return the partition/offset of a dead letter."""
    return f"{letter.position.partition}/{letter.position.offset}"


def _excerpt(letter: DeadLetter, redact: Callable[[str], str]) -> str:
    source = f"{letter.source} " if letter.source else ""
    whole = letter.payload
    payload = letter.value.decode(errors="replace") if whole is None else whole
    payload = redact(payload[:_REDACTED])
    return f"{source}{payload[:_CHARACTERS]!r}{'…' if len(payload) > _CHARACTERS else ''}"
