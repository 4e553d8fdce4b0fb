"""Dead letters as a check reads them: by the source record that each is about.

Pure. Not here: writing them (`kafka_source.dead_letter`, the library's staging). Called by the
verifiers of the packaged jobs; ip_count's has its own, which knows of late rows by itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sluicegate_jobs.findings import DUPLICATED, LOST, WRONG, Findings
from sluicegate_jobs.kafka_reader import Record

EMPTY, UNPARSED, LATE = "empty", "unparsed", "late"
"""How reasons begin."""


def text_of(value: bytes | None) -> bytes | str:
    """Return a value that is UTF-8 text, or how the reason begins why it is none."""
    if value is None:
        return EMPTY
    try:
        value.decode()
    except UnicodeDecodeError:
        return UNPARSED
    return value


class Letters:
    """The dead letters of a job.

    Args:
        values: of its topic of dead letters.
        findings: gets what is wrong with them.
    """

    def __init__(self, values: Iterable[bytes | None], findings: Findings) -> None:
        self._findings = findings
        self._by_source: dict[tuple[str, int, int], dict[str, Any]] = {}
        self.count = 0
        self.late = 0
        self.refused: list[dict[str, Any]] = []
        """The rows that a sink refused: as JSON where a sink has them so, else by columns."""
        self.refused_at: set[tuple[str, int, int]] = set()
        """The records that refused rows were made of, where the letters say so."""
        self.cut = 0
        """Letters about refused rows that were too long for a letter: not to be read back."""
        for value in values:
            self.count += 1
            self._read(value)

    def _read(self, value: bytes | None) -> None:
        letter = _object(value)
        if letter is None or not isinstance(letter.get("reason"), str):
            self._findings.add(WRONG, f"a dead letter cannot be read: {value!r:.120}")
            return
        source = letter.get("source")
        if not isinstance(source, dict) or letter.get("payload_of") == "staged row":
            self._refusal(letter)
            return
        where = (str(source.get("topic")), source.get("partition", -1), source.get("offset", -1))
        if where in self._by_source:
            self._findings.add(DUPLICATED, f"{_name(*where)} has two dead letters")
        self._by_source[where] = letter

    def _refusal(self, letter: dict[str, Any]) -> None:
        if not letter["reason"].startswith("refused by "):
            self._findings.add(WRONG, f"a dead letter has no source: {letter['reason']!r:.80}")
            return
        source = letter.get("source")
        if isinstance(source, dict):
            where = (
                str(source.get("topic")),
                source.get("partition", -1),
                source.get("offset", -1),
            )
            self.refused_at.add(where)
        rows = _list(letter.get("payload"))
        if not rows:
            self.cut += 1
            return
        whole = (_object(str(row.get("value")).encode()) for row in rows)
        self.refused.append(next((row for row in whole if row), rows[0]))

    def is_late(self, topic: str, record: Record) -> bool:
        """Say whether a record has a letter as late."""
        letter = self._by_source.get((topic, record.partition, record.offset))
        return letter is not None and letter["reason"].startswith(LATE)

    def check(self, topic: str, record: Record, reason: str | None) -> None:
        """Compare a record that was read with its letter.

        Args:
            topic: of the source.
            record: of it.
            reason: how its letter must begin; None if it must have none.
        """
        letter = self._by_source.pop((topic, record.partition, record.offset), None)
        name = _name(topic, record.partition, record.offset)
        if letter is None:
            if reason is not None:
                self._findings.add(LOST, f"{name} is {reason} and has no dead letter")
            return
        if reason is None or not letter["reason"].startswith(reason):
            truth = "is whole" if reason is None else f"is {reason}"
            said = f"{letter['reason']!r:.80}"
            self._findings.add(WRONG, f"{name} {truth}; its dead letter says {said}")
        digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()
        if letter.get("payload_sha256") != digest:
            self._findings.add(WRONG, f"{name} has a dead letter with another payload's hash")

    def check_none_left(self) -> None:
        """Note letters about records that were not read."""
        for where in self._by_source:
            self._findings.add(
                WRONG, f"a dead letter is about {_name(*where)}: not read, or not there"
            )


def _object(value: bytes | None) -> dict[str, Any] | None:
    """Return a JSON object, None if it is none: the caller reports what that means."""
    # Spark cuts payloads by bytes it does not look at: letters about garbage are not always UTF-8
    try:
        found = json.loads((value or b"").decode(errors="replace"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _list(text: object) -> list[dict[str, Any]]:
    """Return the structs of a refused row; none where the payload was cut."""
    try:
        found = json.loads(str(text))
    except ValueError:
        return []
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _name(topic: str, partition: int, offset: int) -> str:
    return f"record {topic}/{partition}@{offset}"
