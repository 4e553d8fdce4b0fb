"""Computes the expected counts of ip_count from its source lines, and compares the sinks with them. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Position, Record
from sluicegate_jobs.access_log import Hit, LineReader
from sluicegate_jobs.verification.dead_letters import DeadLetters, json_object
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings

Key = tuple[int, str]
"""Start of a window (ms since 1970) and address."""


class TableRow(NamedTuple):
    """A row of the table."""

    window_start: datetime
    ip: str
    window_end: datetime
    hits: int


@dataclass(frozen=True)
class Rules:
    """What the expected counts depend on besides the lines.

    Args:
        topic: of the source.
        covered: partition -> the first offset that no decided epoch has read.
        window_ms: length of the windows.
        lateness_ms: how much older than the newest event a hit may be.
    """

    topic: str
    covered: Mapping[int, int]
    window_ms: int
    lateness_ms: int


@dataclass
class _Expected:
    """The expected contents of the sinks.

    Args:
        hits: counts of the lines that were read.
        unread: counts of the lines that no decided epoch has read.
        refused: counts that a sink refused.
        missing: keys whose count is missing from a sink because it was refused.
    """

    hits: Counter[Key] = field(default_factory=Counter)
    unread: Counter[Key] = field(default_factory=Counter)
    refused: dict[Key, set[int]] = field(default_factory=dict)
    missing: set[Key] = field(default_factory=set)


def compare(
    source: Iterable[Record],
    kafka: Iterable[tuple[bytes | None, bytes | None]],
    mysql: Iterable[TableRow],
    letters: Iterable[bytes | None],
    rules: Rules,
) -> Verification:
    """Compare the sinks with the counts of the source lines.

    Every line that a decided epoch has read must be in exactly one place: in the count of its window
    and address, in both sinks, or in one dead letter with a valid reason.

    Args:
        source: all lines, including those that no epoch has read.
        kafka: key and value of the records; those of one key in order.
        mysql: the table.
        letters: the values of the dead letters.
        rules: see `Rules`.
    """
    comparison = _Comparison(rules, letters)
    comparison.read_source(source)
    comparison.check("Kafka", comparison.last_records(kafka))
    comparison.check("MySQL", comparison.table(mysql))
    return comparison.outcome()


class _Comparison:
    """One comparison: dead letters first, then the lines that they are about, then the sinks."""

    def __init__(self, rules: Rules, letters: Iterable[bytes | None]) -> None:
        self._rules = rules
        self._findings, self._expected = Findings(), _Expected()
        self._letters = DeadLetters(letters, self._findings)
        for row in self._letters.refused:
            if {"window_start", "ip", "hits"} <= row.keys():
                key = (_window_ms(row["window_start"]), str(row["ip"]))
                self._expected.refused.setdefault(key, set()).add(int(row["hits"]))
        self._newest_ms = 0
        self._late: list[tuple[int, Record]] = []
        self._checked = {"dead letters": self._letters.count}

    def outcome(self) -> Verification:
        counts = {
            "expected counts": len(self._expected.hits),
            "counts that a sink refused": len(self._expected.missing),
        }
        return Verification(self._checked | counts, self._findings.result())

    def read_source(self, source: Iterable[Record]) -> None:
        """Compute the expected counts; check each dead letter against its line."""
        reader, covered = LineReader(), self._rules.covered
        read = unread = 0
        for line in source:
            parsed, letter = reader.read(line.value), self._letters.pop(self._position(line))
            if line.offset >= covered.get(line.partition, 0):
                unread += 1
                self._add_unread(line, parsed, letter)
                continue
            read += 1
            if letter is not None:
                self._check_letter(letter, parsed, line)
            if isinstance(parsed, Hit):
                self._add_hit(line, parsed, letter)
            elif letter is None:
                self._findings.add(
                    LOST, f"line {self._position(line)} is {parsed} and has no dead letter"
                )
        self._letters.check_none_left()
        self._check_late()
        self._checked = {
            "source lines": read,
            "source lines not read yet": unread,
            "late lines": len(self._late),
        } | self._checked

    def _add_unread(self, line: Record, parsed: Hit | str, letter: dict[str, Any] | None) -> None:
        if letter is not None:
            what = (
                f"line {self._position(line)} has a dead letter, but no decided epoch has read it"
            )
            self._findings.add(UNDECIDED, what)
        elif isinstance(parsed, Hit):
            self._expected.unread[self._key(parsed)] += 1

    def _add_hit(self, line: Record, hit: Hit, letter: dict[str, Any] | None) -> None:
        self._newest_ms = max(self._newest_ms, hit.at_ms)
        key = self._key(hit)
        if letter is not None and letter["reason"].startswith("late"):
            self._late.append((key[0] + self._rules.window_ms, line))
        else:
            self._expected.hits[key] += 1

    def _check_late(self) -> None:
        """Add findings for lines that cannot have been late: no watermark exceeds the newest event."""
        for window_end_ms, line in self._late:
            if window_end_ms > self._newest_ms - self._rules.lateness_ms:
                what = f"line {self._position(line)} has a dead letter as late, but was within the lateness"
                self._findings.add(WRONG, what)

    def _check_letter(self, letter: dict[str, Any], parsed: Hit | str, line: Record) -> None:
        valid = "late" if isinstance(parsed, Hit) else parsed
        if not letter["reason"].startswith(valid):
            truth = "can be parsed" if isinstance(parsed, Hit) else f"is {parsed}"
            what = f"line {self._position(line)} {truth}; its dead letter says {letter['reason']!r:.80}"
            self._findings.add(WRONG, what)
        digest = None if line.value is None else hashlib.sha256(line.value).hexdigest()
        if letter.get("payload_sha256") != digest:
            what = f"the dead letter of line {self._position(line)} has another payload's hash"
            self._findings.add(WRONG, what)

    def last_records(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Key, int]:
        """Return the last count of each key, which must be the highest."""
        last: dict[Key, int] = {}
        earlier: dict[Key, set[int]] = {}
        count = 0
        for name, value in records:
            count += 1
            row = json_object(value)
            try:
                key, hits = self._parse_count(row or {})
            except (KeyError, TypeError, ValueError):
                self._findings.add(WRONG, f"a record in Kafka is not a count: {value!r:.120}")
                continue
            if name is None or name.decode(errors="replace") != key[1]:
                what = f"a record in Kafka has key {name!r} but is about {_window(key)}"
                self._findings.add(WRONG, what)
            if key in last:
                counts = earlier.setdefault(key, {last[key]})
                self._check_growth(key, hits, last[key], counts)
                counts.add(hits)
            last[key] = max(hits, last.get(key, hits))
        self._checked["records in Kafka"] = count
        return last

    def _check_growth(self, key: Key, hits: int, last: int, earlier: set[int]) -> None:
        if hits in earlier:
            self._findings.add(DUPLICATED, f"{_window(key)}: Kafka has the count {hits} twice")
        elif hits < last:
            self._findings.add(WRONG, f"{_window(key)}: Kafka has {hits} after {last}")

    def _parse_count(self, row: dict[str, Any]) -> tuple[Key, int]:
        start_ms, hits = _window_ms(row["window_start"]), row["hits"]
        length_ms = _window_ms(row["window_end"]) - start_ms
        if length_ms != self._rules.window_ms or not isinstance(hits, int):
            raise ValueError("not a window of this length, or not a count")
        return (start_ms, row["ip"]), hits

    def table(self, rows: Iterable[TableRow]) -> dict[Key, int]:
        """Return the counts of the table."""
        counts: dict[Key, int] = {}
        length = timedelta(milliseconds=self._rules.window_ms)
        for row in rows:
            key = (int(row.window_start.replace(tzinfo=UTC).timestamp() * 1000), row.ip)
            if row.window_end - row.window_start != length:
                what = f"{_window(key)}: MySQL has the window end {row.window_end}"
                self._findings.add(WRONG, what)
            counts[key] = row.hits
        self._checked["rows in MySQL"] = len(counts)
        return counts

    def check(self, sink: str, rows: dict[Key, int]) -> None:
        """Compare the counts of a sink with the expected ones."""
        expected = self._expected
        for key, hits in expected.hits.items():
            found = rows.get(key)
            if found == hits:
                continue
            if hits in expected.refused.get(key, ()) and (found or 0) < hits:
                expected.missing.add(key)  # not lost: it is a dead letter
            elif found is None:
                what = f"{_window(key)}: {sink} has no row, expected {hits}"
                self._findings.add(LOST, what)
            elif found < hits:
                what = f"{_window(key)}: {sink} has {found}, expected {hits}"
                self._findings.add(LOST, what)
            else:
                self._too_many(sink, key, found, hits)
        for key in rows.keys() - expected.hits.keys():
            self._too_many(sink, key, rows[key], 0)

    def _too_many(self, sink: str, key: Key, found: int, hits: int) -> None:
        what = f"{_window(key)}: {sink} has {found}, expected {hits}"
        if 0 < found - hits <= self._expected.unread[key]:
            cause = "lines that no decided epoch has read would explain it"
            self._findings.add(UNDECIDED, f"{what}; {cause}")
        else:
            self._findings.add(WRONG, what)

    def _key(self, hit: Hit) -> Key:
        return hit.at_ms - hit.at_ms % self._rules.window_ms, hit.ip

    def _position(self, line: Record) -> Position:
        return Position(self._rules.topic, line.partition, line.offset)


_windows: dict[str, int] = {}


def _window_ms(text: str) -> int:
    """Return a time as Spark writes it in JSON; cached, because windows repeat."""
    time_ms = _windows.get(text)
    if time_ms is None:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        time_ms = _windows[text] = int(time.timestamp() * 1000)
    return time_ms


def _window(key: Key) -> str:
    return f"{datetime.fromtimestamp(key[0] / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} {key[1]}"
