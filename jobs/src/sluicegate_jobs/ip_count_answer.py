"""The right answer of ip_count, computed from its source lines, and what differs from it.

Pure: no Kafka, no MySQL, no Spark. Not here: reading a line (`access_lines`), the source and the
sinks (`ip_count_verify`, the only caller besides the tests).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sluicegate.cli.job import Verification
from sluicegate_jobs.access_lines import Hit, LineReader
from sluicegate_jobs.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings

Key = tuple[int, str]
"""Begin of a window (ms since 1970) and address."""


class SourceLine(NamedTuple):
    """A record of the source topic."""

    partition: int
    offset: int
    value: bytes | None


class TableRow(NamedTuple):
    """A row of the table."""

    window_start: datetime
    ip: str
    window_end: datetime
    hits: int


@dataclass(frozen=True)
class Rules:
    """What the answer depends on besides the lines.

    Args:
        topic: of the source.
        covered: partition -> the first offset that no decided epoch has read.
        window_ms: length of the windows.
        lateness_ms: how far behind the newest event a hit may be.
    """

    topic: str
    covered: Mapping[int, int]
    window_ms: int
    lateness_ms: int


@dataclass
class _Expected:
    """What the sinks should hold.

    Args:
        hits: counts that the lines make.
        unread: counts that lines would make that no decided epoch has read.
        refused: counts that a sink could not take.
        buried: keys whose count is not in a sink, because it was refused.
    """

    hits: Counter[Key] = field(default_factory=Counter)
    unread: Counter[Key] = field(default_factory=Counter)
    refused: dict[Key, set[int]] = field(default_factory=dict)
    buried: set[Key] = field(default_factory=set)


def compare(
    source: Iterable[SourceLine],
    kafka: Iterable[tuple[bytes | None, bytes | None]],
    mysql: Iterable[TableRow],
    letters: Iterable[bytes | None],
    rules: Rules,
) -> Verification:
    """Compare the sinks with what the source lines make.

    Every line that a decided epoch has read must be in one place: in the count of its window and
    address, in both sinks, or in one dead letter with a legal reason.

    Args:
        source: all lines, those that no epoch has read too.
        kafka: key and value of the records of counts; those of a key in their order.
        mysql: the table.
        letters: the values of the dead letters.
        rules: see there.
    """
    comparison = _Comparison(rules)
    comparison.read_letters(letters)
    comparison.read_source(source)
    comparison.check("Kafka", comparison.last_records(kafka))
    comparison.check("MySQL", comparison.table(mysql))
    return comparison.outcome()


class _Letters:
    """The dead letters by the source record that they are about."""

    def __init__(self, findings: Findings, expected: _Expected) -> None:
        self._findings, self._expected = findings, expected
        self._by_source: dict[tuple[str, int, int], dict[str, Any]] = {}

    def read(self, value: bytes | None) -> None:
        """File a dead letter."""
        letter = _json_object(value)
        if letter is None or not isinstance(letter.get("reason"), str):
            self._findings.add(WRONG, f"a dead letter cannot be read: {value!r:.120}")
        else:
            self._file(letter)

    def _file(self, letter: dict[str, Any]) -> None:
        source = letter.get("source")
        if not isinstance(source, dict):
            self._refusal(letter)
            return
        where = (str(source.get("topic")), source.get("partition", -1), source.get("offset", -1))
        if where in self._by_source:
            self._findings.add(DUPLICATED, f"{_line(*where)} has two dead letters")
        self._by_source[where] = letter

    def _refusal(self, letter: dict[str, Any]) -> None:
        """Note the rows in a letter without a source: staged, and refused by a sink."""
        if not letter["reason"].startswith("refused by "):
            said = f"{letter['reason']!r:.80}"
            self._findings.add(WRONG, f"a dead letter has no source and says {said}")
            return
        for staged in _json_list(letter.get("payload")):
            row = _json_object(staged.get("value")) if isinstance(staged, dict) else None
            if row is None:
                continue  # the same row, as the table would have had it
            if "source" in row and isinstance(row.get("reason"), str):
                self._file(row)  # a dead letter that was itself refused
            elif {"window_start", "ip", "hits"} <= row.keys():
                key = (_window_ms(row["window_start"]), str(row["ip"]))
                self._expected.refused.setdefault(key, set()).add(int(row["hits"]))

    def take(self, topic: str, line: SourceLine) -> dict[str, Any] | None:
        """Return the letter about a line, once."""
        return self._by_source.pop((topic, line.partition, line.offset), None)

    def check_none_left(self) -> None:
        """Note letters about lines that are not there."""
        for where in self._by_source:
            self._findings.add(WRONG, f"a dead letter is about {_line(*where)}: there is none")


class _Comparison:
    """One comparison: letters first, then the lines that they are about, then the sinks."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._findings, self._expected = Findings(), _Expected()
        self._letters = _Letters(self._findings, self._expected)
        self._newest_ms = 0
        self._late: list[tuple[int, SourceLine]] = []
        self._checked: dict[str, int] = {}

    def outcome(self) -> Verification:
        answer = {
            "counts that the lines make": len(self._expected.hits),
            "counts that a sink refused": len(self._expected.buried),
        }
        return Verification(self._checked | answer, self._findings.found())

    def read_letters(self, letters: Iterable[bytes | None]) -> None:
        count = 0
        for letter in letters:
            count += 1
            self._letters.read(letter)
        self._checked["dead letters"] = count

    def read_source(self, source: Iterable[SourceLine]) -> None:
        """Compute the answer; check each letter against its line."""
        reader, topic, covered = LineReader(), self._rules.topic, self._rules.covered
        read = unread = 0
        for line in source:
            said, letter = reader.read(line.value), self._letters.take(topic, line)
            if line.offset >= covered.get(line.partition, 0):
                unread += 1
                self._unread(line, said, letter)
                continue
            read += 1
            if letter is not None:
                self._check_letter(letter, said, line)
            if isinstance(said, Hit):
                self._hit(line, said, letter)
            elif letter is None:
                self._findings.add(LOST, f"{self._name(line)} is {said} and has no dead letter")
        self._letters.check_none_left()
        self._check_late()
        self._checked = {
            "source lines": read,
            "source lines not read yet": unread,
            "late lines": len(self._late),
        } | self._checked

    def _unread(self, line: SourceLine, said: Hit | str, letter: dict[str, Any] | None) -> None:
        if letter is not None:
            what = f"{self._name(line)} has a dead letter; no decided epoch has read it"
            self._findings.add(UNDECIDED, what)
        elif isinstance(said, Hit):
            self._expected.unread[self._key(said)] += 1

    def _hit(self, line: SourceLine, hit: Hit, letter: dict[str, Any] | None) -> None:
        self._newest_ms = max(self._newest_ms, hit.at_ms)
        key = self._key(hit)
        if letter is not None and letter["reason"].startswith("late"):
            self._late.append((key[0] + self._rules.window_ms, line))
        else:
            self._expected.hits[key] += 1

    def _check_late(self) -> None:
        """Note lines that no watermark can have made late: none was ever beyond the newest."""
        for window_end_ms, line in self._late:
            if window_end_ms > self._newest_ms - self._rules.lateness_ms:
                what = f"{self._name(line)} has a letter as late, and was within the lateness"
                self._findings.add(WRONG, what)

    def _check_letter(self, letter: dict[str, Any], said: Hit | str, line: SourceLine) -> None:
        legal = "late" if isinstance(said, Hit) else said
        if not letter["reason"].startswith(legal):
            truth = "can be read" if isinstance(said, Hit) else f"is {said}"
            what = f"{self._name(line)} {truth}; its dead letter says {letter['reason']!r:.80}"
            self._findings.add(WRONG, what)
        digest = None if line.value is None else hashlib.sha256(line.value).hexdigest()
        if letter.get("payload_sha256") != digest:
            what = f"{self._name(line)} has a dead letter with another payload's hash"
            self._findings.add(WRONG, what)

    def last_records(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Key, int]:
        """Return the highest count of each key, which is the last: others are noted as wrong."""
        last: dict[Key, int] = {}
        before: dict[Key, set[int]] = {}
        count = 0
        for name, value in records:
            count += 1
            row = _json_object(value)
            try:
                key, hits = self._counted(row or {})
            except (KeyError, TypeError, ValueError):
                self._findings.add(WRONG, f"a record of Kafka is no count: {value!r:.120}")
                continue
            if name is None or name.decode(errors="replace") != key[1]:
                what = f"a record of Kafka has key {name!r} and is about {_window(key)}"
                self._findings.add(WRONG, what)
            if key in last:
                earlier = before.setdefault(key, {last[key]})
                self._check_growth(key, hits, last[key], earlier)
                earlier.add(hits)
            last[key] = max(hits, last.get(key, hits))
        self._checked["records in Kafka"] = count
        return last

    def _check_growth(self, key: Key, hits: int, last: int, earlier: set[int]) -> None:
        if hits in earlier:
            self._findings.add(DUPLICATED, f"{_window(key)}: Kafka has the count {hits} twice")
        elif hits < last:
            self._findings.add(WRONG, f"{_window(key)}: Kafka has {hits} after {last}")

    def _counted(self, row: dict[str, Any]) -> tuple[Key, int]:
        start_ms, hits = _window_ms(row["window_start"]), row["hits"]
        length_ms = _window_ms(row["window_end"]) - start_ms
        if length_ms != self._rules.window_ms or not isinstance(hits, int):
            raise ValueError("not a window of this length, or no count")
        return (start_ms, row["ip"]), hits

    def table(self, rows: Iterable[TableRow]) -> dict[Key, int]:
        """Return the counts of the table."""
        counts: dict[Key, int] = {}
        length = timedelta(milliseconds=self._rules.window_ms)
        for row in rows:
            key = (int(row.window_start.replace(tzinfo=UTC).timestamp() * 1000), row.ip)
            if row.window_end - row.window_start != length:
                what = f"{_window(key)}: MySQL says that the window ends {row.window_end}"
                self._findings.add(WRONG, what)
            counts[key] = row.hits
        self._checked["rows in MySQL"] = len(counts)
        return counts

    def check(self, sink: str, rows: dict[Key, int]) -> None:
        """Compare the counts of a sink with the answer."""
        expected = self._expected
        for key, hits in expected.hits.items():
            found = rows.get(key)
            if found == hits:
                continue
            if hits in expected.refused.get(key, ()) and (found or 0) < hits:
                expected.buried.add(key)  # not lost: it lies in the dead letters
            elif found is None:
                what = f"{_window(key)}: {sink} has no row, the lines make {hits}"
                self._findings.add(LOST, what)
            elif found < hits:
                what = f"{_window(key)}: {sink} says {found}, the lines make {hits}"
                self._findings.add(LOST, what)
            else:
                self._too_many(sink, key, found, hits)
        for key in rows.keys() - expected.hits.keys():
            self._too_many(sink, key, rows[key], 0)

    def _too_many(self, sink: str, key: Key, found: int, hits: int) -> None:
        what = f"{_window(key)}: {sink} says {found}, the lines make {hits}"
        if 0 < found - hits <= self._expected.unread[key]:
            why = "lines that no decided epoch has read would explain it"
            self._findings.add(UNDECIDED, f"{what}; {why}")
        else:
            self._findings.add(WRONG, what)

    def _key(self, hit: Hit) -> Key:
        return hit.at_ms - hit.at_ms % self._rules.window_ms, hit.ip

    def _name(self, line: SourceLine) -> str:
        return _line(self._rules.topic, line.partition, line.offset)


def _json_object(value: bytes | str | None) -> dict[str, Any] | None:
    """Return a JSON object, None if it is none: the caller reports what that means."""
    # Spark cuts payloads by bytes it does not look at: letters about garbage are not always UTF-8.
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _json_list(text: object) -> list[Any]:
    try:
        found = json.loads(str(text))
    except ValueError:
        return []  # cut: rows of counts never are, so the row will be reported as lost
    return found if isinstance(found, list) else []


_windows: dict[str, int] = {}


def _window_ms(text: str) -> int:
    """Return a time as Spark writes it in JSON; windows repeat, so they are remembered."""
    found = _windows.get(text)
    if found is None:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        found = _windows[text] = int(at.timestamp() * 1000)
    return found


def _window(key: Key) -> str:
    return f"{datetime.fromtimestamp(key[0] / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} {key[1]}"


def _line(topic: str, partition: int, offset: int) -> str:
    return f"line {topic}/{partition}@{offset}"
