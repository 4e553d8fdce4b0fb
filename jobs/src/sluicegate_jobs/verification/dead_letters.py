"""The dead letters of a job, by the source record that each is about. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sluicegate.dead_letters.letter import STAGED_ROW
from sluicegate.sinks.kafka.reader import Position, Record
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings

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
    """The dead letters of a job whose source is `topic`; `findings` receives what is wrong with them."""

    def __init__(self, values: Iterable[bytes | None], topic: str, findings: Findings) -> None:
        self._topic, self._findings = topic, findings
        self._by_source: dict[Position, dict[str, Any]] = {}
        self.count = 0
        self.refused: list[dict[str, Any]] = []
        """The rows that a sink refused: JSON if a sink writes JSON, otherwise columns."""
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
        parsed = _parse(str(letter.get("payload")))
        rows = [row for row in parsed if isinstance(row, dict)] if isinstance(parsed, list) else []
        if not rows:
            self.truncated += 1
            return
        as_json = (json_object(str(row.get("value"))) for row in rows)
        row = next((row for row in as_json if row), rows[0])
        if isinstance(row.get("source"), dict) and isinstance(row.get("reason"), str):
            self._add(row)  # a dead letter that was itself refused
        else:
            self.refused.append(row)

    def check_unread(self, record: Record) -> bool:
        """Return whether a record that no decided epoch has read has a dead letter: that is a finding."""
        position = Position(self._topic, record.partition, record.offset)
        if self._by_source.pop(position, None) is None:
            return False
        what = f"record {position} has a dead letter, but no decided epoch has read it"
        self._findings.add(UNDECIDED, what)
        return True

    def check(self, record: Record, reason: str | None, *, may_be_late: bool = False) -> bool:
        """Compare a source record with its dead letter; return whether the job dropped it as late.

        Args:
            record: that an epoch has read.
            reason: how its dead letter must begin; None if the record is valid.
            may_be_late: a valid record may have a dead letter as late; otherwise it has none.
        """
        position = Position(self._topic, record.partition, record.offset)
        letter = self._by_source.pop(position, None)
        if letter is None:
            if reason is not None:
                self._findings.add(LOST, f"record {position} is {reason} and has no dead letter")
            return False
        is_late = may_be_late and reason is None and letter["reason"].startswith(LATE)
        if not is_late and (reason is None or not letter["reason"].startswith(reason)):
            truth = "is valid" if reason is None else f"is {reason}"
            stated = f"{letter['reason']!r:.80}"
            self._findings.add(WRONG, f"record {position} {truth}; its dead letter says {stated}")
        digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()
        if letter.get("payload_sha256") != digest:
            self._findings.add(
                WRONG, f"the dead letter of record {position} has another payload's hash"
            )
        return is_late

    def check_none_left(self) -> None:
        """Add a finding for each dead letter about a record that was not read."""
        for position in self._by_source:
            self._findings.add(
                WRONG, f"a dead letter is about record {position}: not read, or nonexistent"
            )


def _position_of(source: dict[str, Any]) -> Position:
    return Position(str(source.get("topic")), source.get("partition", -1), source.get("offset", -1))


def json_object(value: bytes | str | None) -> dict[str, Any] | None:
    """Return a JSON object, None if the value is none; the caller reports what that means."""
    parsed = _parse(value)
    return parsed if isinstance(parsed, dict) else None


def _parse(value: bytes | str | None) -> object:
    # Spark cuts payloads without regard to characters: dead letters about garbage may not be UTF-8.
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    try:
        parsed: object = json.loads(text or "")
    except ValueError:
        return None
    return parsed


def utc_time(text: str) -> datetime:
    """Return a time as Spark writes it in JSON; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
