"""The dead letters of a job, by the source record that each is about. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sluicegate.dead_letters.letter import STAGED_ROW
from sluicegate.sinks.kafka.reader import Position, Record
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, WRONG, Findings

EMPTY, UNPARSED, LATE = "empty", "unparsed", "late"
"""The first words of reasons."""


def text_of(value: bytes | None) -> bytes | str:
    """Return a value that is UTF-8 text, or the first word of the reason why it is not."""
    if value is None:
        return EMPTY
    try:
        value.decode()
    except UnicodeDecodeError:
        return UNPARSED
    return value


class DeadLetters:
    """The dead letters of a job.

    Args:
        values: of its dead-letter topic.
        findings: receives what is wrong with them.
    """

    def __init__(self, values: Iterable[bytes | None], findings: Findings) -> None:
        self._findings = findings
        self._by_source: dict[Position, dict[str, Any]] = {}
        self.count = 0
        self.refused: list[dict[str, Any]] = []
        """The rows that a sink refused: as JSON if a sink has them so, otherwise by columns."""
        self.refused_sources: set[Position] = set()
        """The records that refused rows were made from, if the dead letters name them."""
        self.truncated = 0
        """Dead letters of refused rows whose payload was cut, so the row is unknown."""
        for value in values:
            self.count += 1
            self._read(value)

    def _read(self, value: bytes | None) -> None:
        letter = json_object(value)
        if letter is None or not isinstance(letter.get("reason"), str):
            self._findings.add(WRONG, f"a dead letter cannot be read: {value!r:.120}")
            return
        source = letter.get("source")
        if not isinstance(source, dict) or letter.get("payload_of") == STAGED_ROW:
            self._read_refused(letter)
            return
        self._add(letter)

    def _add(self, letter: dict[str, Any]) -> None:
        position = _position_of(letter["source"])
        if position in self._by_source:
            self._findings.add(DUPLICATED, f"record {position} has two dead letters")
        self._by_source[position] = letter

    def _read_refused(self, letter: dict[str, Any]) -> None:
        if not letter["reason"].startswith("refused by "):
            self._findings.add(WRONG, f"a dead letter has no source: {letter['reason']!r:.80}")
            return
        if isinstance(letter.get("source"), dict):
            self.refused_sources.add(_position_of(letter["source"]))
        rows = [row for row in _json_list(letter.get("payload")) if isinstance(row, dict)]
        if not rows:
            self.truncated += 1
            return
        as_json = (json_object(str(row.get("value"))) for row in rows)
        row = next((row for row in as_json if row), rows[0])
        if isinstance(row.get("source"), dict) and isinstance(row.get("reason"), str):
            self._add(row)  # a dead letter that was itself refused
        else:
            self.refused.append(row)

    def pop(self, position: Position) -> dict[str, Any] | None:
        """Return and remove the dead letter about a record."""
        return self._by_source.pop(position, None)

    def is_late(self, topic: str, record: Record) -> bool:
        """Return whether a record has a dead letter as late."""
        letter = self._by_source.get(Position(topic, record.partition, record.offset))
        return letter is not None and letter["reason"].startswith(LATE)

    def check(self, topic: str, record: Record, reason: str | None) -> None:
        """Compare a source record with its dead letter.

        Args:
            topic: of the source.
            record: that an epoch has read.
            reason: how its dead letter must begin; None if it must have none.
        """
        position = Position(topic, record.partition, record.offset)
        letter = self.pop(position)
        if letter is None:
            if reason is not None:
                self._findings.add(LOST, f"record {position} is {reason} and has no dead letter")
            return
        if reason is None or not letter["reason"].startswith(reason):
            truth = "is valid" if reason is None else f"is {reason}"
            stated = f"{letter['reason']!r:.80}"
            self._findings.add(WRONG, f"record {position} {truth}; its dead letter says {stated}")
        digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()
        if letter.get("payload_sha256") != digest:
            self._findings.add(
                WRONG, f"the dead letter of record {position} has another payload's hash"
            )

    def check_none_left(self) -> None:
        """Add a finding for each dead letter about a record that was not read."""
        for position in self._by_source:
            self._findings.add(
                WRONG, f"a dead letter is about record {position}: not read, or nonexistent"
            )


def _position_of(source: dict[str, Any]) -> Position:
    """Return the position in a dead letter's source."""
    return Position(str(source.get("topic")), source.get("partition", -1), source.get("offset", -1))


def json_object(value: bytes | str | None) -> dict[str, Any] | None:
    """Return a JSON object, None if the value is none; the caller reports what that means."""
    # Spark cuts payloads without regard to characters: dead letters about garbage may not be UTF-8.
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    try:
        parsed = json.loads(text or "")
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _json_list(text: object) -> list[Any]:
    """Return the JSON list of a refused row's columns; empty if the payload was cut."""
    try:
        parsed = json.loads(str(text))
    except ValueError:
        return []
    return parsed if isinstance(parsed, list) else []
