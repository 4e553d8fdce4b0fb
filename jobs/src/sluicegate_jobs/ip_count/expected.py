"""Computes the expected counts of ip_count from its source lines, and compares the sinks with them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sluicegate.packaged_job import Verification
from sluicegate_jobs.access_log import Hit, read_line
from sluicegate_jobs.verification.dead_letters import DeadLetters, json_object, utc_time
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings
from sluicegate_jobs.verification.limits import NO_LIMITS, SinkLimits

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
    """Length of the windows, and how much older than the newest event a hit may be."""

    window_ms: int
    lateness_ms: int


def compare(
    source: SourceRecords,
    kafka: Iterable[tuple[bytes | None, bytes | None]],
    mysql: Iterable[TableRow],
    letters: Iterable[bytes | None],
    rules: Rules,
    limits: SinkLimits = NO_LIMITS,
) -> Verification:
    """Compare the sinks with the counts of the source lines.

    Every line that a decided epoch has read must be in exactly one place: in the count of its window
    and address, in both sinks, or in one dead letter with a valid reason.

    Args:
        source: the lines.
        kafka: key and value of the records; those of one key in order.
        mysql: the table.
        letters: the values of the dead letters.
        rules: of the job.
        limits: of its sinks.
    """
    comparison = _Comparison(rules, letters, source.topic, limits)
    comparison.read_source(source)
    comparison.check("Kafka", comparison.last_records(kafka))
    comparison.check("MySQL", comparison.table(mysql))
    return comparison.outcome()


class _Comparison:
    """One comparison: dead letters first, then the lines that they are about, then the sinks."""

    def __init__(
        self, rules: Rules, letters: Iterable[bytes | None], topic: str, limits: SinkLimits
    ) -> None:
        self._rules = rules
        self._findings = Findings()
        self._letters = DeadLetters(letters, topic, self._findings, limits)
        self._hits: Counter[Key] = Counter()
        """The expected counts: those of the lines that were read."""
        self._unread_hits: Counter[Key] = Counter()
        """The counts of the lines that no decided epoch has read."""
        self._refused: dict[Key, set[int]] = {}
        """The counts that a sink refused."""
        self._missing: set[Key] = set()
        """The keys whose count is missing from a sink because it was refused."""
        for row in self._letters.refused:
            if {"window_start", "ip", "hits"} <= row.keys():
                key = (_time_ms(row["window_start"]), str(row["ip"]))
                self._refused.setdefault(key, set()).add(int(row["hits"]))
        self._checked: dict[str, int] = {}

    def outcome(self) -> Verification:
        counts = {
            "expected counts": len(self._hits),
            "counts that a sink refused": len(self._missing),
        }
        return Verification(self._checked | counts, self._findings.result())

    def read_source(self, source: SourceRecords) -> None:
        """Compute the expected counts; check each dead letter against its line."""
        for line, read in source.with_unread():
            parsed = read_line(line.value)
            if not read:
                if not self._letters.check_unread(line) and isinstance(parsed, Hit):
                    self._unread_hits[self._key(parsed)] += 1
            elif isinstance(parsed, str):
                self._letters.check(line, parsed)
            else:
                key = self._key(parsed)
                end_ms = key[0] + self._rules.window_ms
                late = source.watermarks.judge(line, parsed.at_ms, end_ms)
                if not self._letters.check(line, None, late=late):
                    self._hits[key] += 1
        self._letters.check_none_left()
        source.watermarks.check(self._rules.lateness_ms, self._findings)
        self._check_refused()
        self._checked = source.counts("lines") | {"late lines": self._letters.late}
        self._checked |= self._letters.counts()

    def _check_refused(self) -> None:
        """Find refused counts that no lines have."""
        for key, counts in self._refused.items():
            if max(counts) > self._hits[key] + self._unread_hits[key]:
                what = f"{_window(key)}: a sink refused the count {max(counts)}"
                self._findings.add(WRONG, f"{what}, expected {self._hits[key]}")

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
        start_ms, hits = _time_ms(row["window_start"]), row["hits"]
        length_ms = _time_ms(row["window_end"]) - start_ms
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
        for key, hits in self._hits.items():
            found = rows.get(key)
            if found == hits:
                continue
            if hits in self._refused.get(key, ()) and (found or 0) < hits:
                self._missing.add(key)  # not lost: it is a dead letter
            elif found is None or found < hits:
                has = "no row" if found is None else found
                self._findings.add(LOST, f"{_window(key)}: {sink} has {has}, expected {hits}")
            else:
                self._too_many(sink, key, found, hits)
        for key in rows.keys() - self._hits.keys():
            self._too_many(sink, key, rows[key], 0)

    def _too_many(self, sink: str, key: Key, found: int, hits: int) -> None:
        what = f"{_window(key)}: {sink} has {found}, expected {hits}"
        if 0 < found - hits <= self._unread_hits[key]:
            cause = "lines that no decided epoch has read would explain it"
            self._findings.add(UNDECIDED, f"{what}; {cause}")
        else:
            self._findings.add(WRONG, what)

    def _key(self, hit: Hit) -> Key:
        return hit.at_ms - hit.at_ms % self._rules.window_ms, hit.ip


@cache
def _time_ms(text: str) -> int:
    """Return a time in JSON in ms since 1970; cached, because windows repeat."""
    return int(utc_time(text).timestamp() * 1000)


def _window(key: Key) -> str:
    return f"{datetime.fromtimestamp(key[0] / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} {key[1]}"
