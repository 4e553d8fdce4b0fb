"""What the checker compares: the records of a source, and what is in the sinks; and what it finds. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

LOST, REPEATED = "lost", "repeated"
ALTERED, INVENTED = "altered", "invented"


class Record(NamedTuple):
    """A record of a topic, or a line of a file."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


@dataclass(frozen=True)
class History:
    """All that a job has read and written.

    Args:
        source_topic: its name.
        source: its records, in the order of each partition.
        topic: the records of the topic that the job writes, if it writes one.
        table: the rows of the table that it writes, in the order of the job's columns.
        letters: the values of the topic of dead letters.
    """

    source_topic: str
    source: tuple[Record, ...]
    topic: tuple[Record, ...] = ()
    table: tuple[tuple[Any, ...], ...] = ()
    letters: tuple[bytes | None, ...] = ()


@dataclass
class Report:
    """What a check has found.

    Args:
        anomalies: kind and place -> how many rows.
        letters: kind of dead letter -> how many; each test pins them.
        rows: how many rows of the source were judged.
        differences: each key whose number of rows is wrong, with that number and the expected one.
    """

    anomalies: Counter[tuple[str, str]] = field(default_factory=Counter)
    letters: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, kind: str, where: str, count: int = 1) -> None:
        """Add an anomaly."""
        self.anomalies[kind, where] += count

    @property
    def kinds(self) -> set[str]:
        """The kinds of the anomalies."""
        return {kind for kind, _ in self.anomalies}


@dataclass(frozen=True)
class Limits:
    """What the sinks accept: a row beyond it may be a dead letter, and no other one.

    Args:
        characters: column of the table -> its length.
        record_bytes: of the topic.
    """

    characters: Mapping[str, int] = field(default_factory=dict)
    record_bytes: int = 1_048_588

    def refuse(self, row: Mapping[str, Any], written: bytes | None) -> bool:
        """Return whether a sink refuses a row; `written` is what the topic would get."""
        too_long = any(len(str(row.get(n, ""))) > most for n, most in self.characters.items())
        # key, headers and the batch take at least 80 bytes and at most 300
        return too_long or len(written or b"") > self.record_bytes - 300


class Letters:
    """The dead letters of a job, by the record or the row that each is about."""

    def __init__(self, history: History, limits: Limits, report: Report) -> None:
        self._report, self._limits = report, limits
        self._by_position: dict[tuple[int, int], dict[str, Any]] = {}
        self._seen: set[str] = set()
        self.refused: list[dict[str, Any]] = []
        """Rows that a sink refused: the parts that the payload has for each sink, as one row."""
        for value in history.letters:
            self._read(value, history.source_topic)

    def _read(self, value: bytes | None, topic: str) -> None:
        try:
            letter = json.loads(value or b"")
            reason = str(letter["reason"])
            kind = reason[: reason.index(":")] if ":" in reason else reason
            self._report.letters[kind.split(" ")[0]] += 1
            if kind.startswith("refused by "):
                self._read_refused(letter)
                return
            place = letter["source"]
            position = int(place["partition"]), int(place["offset"])
        except (ValueError, LookupError, TypeError):
            self._report.add(INVENTED, "dead letters: one cannot be read")
            return
        if position in self._by_position:
            self._report.add(REPEATED, "dead letters")
        if place["topic"] != topic:
            self._report.add(INVENTED, "dead letters: of another topic")
        self._by_position[position] = letter

    def _read_refused(self, letter: dict[str, Any]) -> None:
        if letter["payload_sha256"] in self._seen:
            self._report.add(REPEATED, "dead letters: a refused row")
        self._seen.add(letter["payload_sha256"])
        row: dict[str, Any] = {}
        written: bytes | None = None
        try:
            parts = json.loads(letter["payload"])
        except ValueError:
            self.refused.append({"sha256": letter["payload_sha256"]})  # cut: too long for a letter
            return
        for part in parts:
            if part.keys() & {"key", "value"}:
                written = str(part.get("value")).encode()
                row |= json.loads(written)
            else:
                row = part | row
        if not self._limits.refuse(row, written):
            self._report.add(LOST, "dead letters: a row that no sink refuses")
        self.refused.append(row)

    def judge(self, record: Record, broken: str, *, may_be_late: bool = False) -> bool:
        """Return whether the row of a record is a dead letter instead of being in the sinks.

        Args:
            record: of the source.
            broken: the kind of dead letter that it must have; empty for a row that can be written.
            may_be_late: whether its dead letter may say that it came late.
        """
        self._report.rows += 1
        letter = self._by_position.pop((record.partition, record.offset), None)
        if letter is None:
            if broken:
                self._report.add(LOST, "dead letters")
            return bool(broken)
        expected = broken or ("late" if may_be_late else "")
        if not expected:
            self._report.add(LOST, "dead letters: a row that is neither broken nor late")
        elif not letter["reason"].startswith(f"{expected}:"):
            self._report.add(ALTERED, "dead letters: another reason")
        content = None if record.value is None else sha256(record.value).hexdigest()
        if letter.get("payload_sha256") != content:
            self._report.add(ALTERED, "dead letters: another payload")
        return True

    def finish(self) -> None:
        """Report the dead letters about records that do not exist."""
        if self._by_position:
            self._report.add(INVENTED, "dead letters", len(self._by_position))


def compare_counts(
    where: str,
    expected: Mapping[Any, int],
    found: Mapping[Any, int],
    report: Report,
    excused: Iterable[Any] = (),
) -> None:
    """Compare numbers of rows by key; a key in `excused` may be too low."""
    excused = set(excused)
    for key in expected.keys() | found.keys():
        right, there = expected.get(key, 0), found.get(key, 0)
        if there == right or (there < right and key in excused):
            continue
        more = REPEATED if key in expected else INVENTED
        report.add(LOST if there < right else more, where, abs(there - right))
        report.differences.append(f"{where}: {key} has {there}, expected {right}")
