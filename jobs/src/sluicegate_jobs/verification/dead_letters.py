"""The dead letters of a job, each judged: by its source record, or by the limits of the sink that it names.

Pure. No dead letter is believed: one about a record that was neither broken nor late, or about a row
that its sink accepts, is a finding.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sluicegate.dead_letters.letter import STAGED_ROW
from sluicegate.sinks.kafka.reader import Position, Record
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings
from sluicegate_jobs.verification.limits import NO_LIMITS, Refused, SinkLimits
from sluicegate_jobs.verification.watermarks import Late

EMPTY, UNPARSED, LATE = "empty", "unparsed", "late"
"""The first words of reasons."""

_REFUSED = re.compile(r"refused by (?P<sink>\S+): ")


def text_of(value: bytes | None) -> bytes | str:
    """Return a value that is UTF-8 text, or the first word of the reason why it is not."""
    if value is None:
        return EMPTY
    try:
        value.decode()
    except UnicodeDecodeError:
        return UNPARSED
    return value


def refusing_sink(reason: str) -> str | None:
    """Return the sink that refused a row, None if the reason is another one."""
    named = _REFUSED.match(reason)
    return None if named is None else named["sink"]


class Refusal(NamedTuple):
    """What a dead letter says about a record that a sink refused; without `rows` if its payload was cut."""

    sink: str
    reason: str
    rows: list[dict[str, Any]]


class DeadLetters:
    """The dead letters of a job.

    Args:
        values: of their topic.
        topic: the job's source.
        findings: receives what is wrong with them.
        limits: of the job's sinks. A row that a sink would accept is not a dead letter.
    """

    def __init__(
        self,
        values: Iterable[bytes | None],
        topic: str,
        findings: Findings,
        limits: SinkLimits = NO_LIMITS,
    ) -> None:
        self._topic, self._findings, self._limits = topic, findings, limits
        self._by_source: dict[Position, dict[str, Any]] = {}
        self.count = 0
        self.late = 0
        """Rows that were late, each with its dead letter."""
        self.unjudged = 0
        """Dead letters that may be right, but whose epoch is pruned or whose limit is not known here."""
        self.refused: list[dict[str, Any]] = []
        """The rows that a sink refused: JSON if a sink writes JSON, otherwise columns."""
        self.refused_sources: dict[Position, Refusal] = {}
        """The records that refused rows were made from, if the dead letters name them."""
        self._refused_rows: set[tuple[Position | None, str]] = set()
        self.truncated: list[dict[str, Any]] = []
        """Dead letters of refused rows whose payload was cut, so that only its hash is known."""
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
        sink = refusing_sink(letter["reason"])
        if sink is None:
            self._findings.add(WRONG, f"a dead letter has no source: {letter['reason']!r:.80}")
            return
        source = letter.get("source")
        position = _position_of(source) if isinstance(source, dict) else None
        parsed = _parse(str(letter.get("payload")))
        rows = [row for row in parsed if isinstance(row, dict)] if isinstance(parsed, list) else []
        if position is not None:
            self.refused_sources[position] = Refusal(sink, letter["reason"], rows)
        row_of = position, str(letter.get("payload_sha256") or letter.get("payload"))
        if row_of in self._refused_rows:
            of = f"of record {position}" if position else f"{row_of[1]:.80}"
            self._findings.add(DUPLICATED, f"a refused row has two dead letters: {of}")
        self._refused_rows.add(row_of)
        if not rows:
            self.truncated.append(letter)
            return
        as_json = (json_object(str(row.get("value"))) for row in rows)
        row = next((row for row in as_json if row), rows[0])
        if isinstance(row.get("source"), dict) and isinstance(row.get("reason"), str):
            self._add(row)  # a dead letter that was itself refused
            return
        self.refused.append(row)
        if not isinstance(letter.get("source"), dict):  # otherwise the caller has the record itself
            refused = self._limits.refuses(sink, rows)
            self.note_refused(refused, sink, f"{row!r:.120}")

    def note_refused(self, refused: Refused, sink: str, row: str) -> None:
        """Add a finding if a sink accepts the row of a dead letter."""
        self.unjudged += refused is Refused.UNKNOWN
        if refused is Refused.NO:
            self._findings.add(
                WRONG,
                f"a dead letter says that {sink} refuses {row}, but it accepts that (or its limits were "
                "widened since)",
            )

    def reason_of(self, record: Record) -> str:
        """Return what the dead letter of a source record says, empty if it has none."""
        letter = self._by_source.get(Position(self._topic, record.partition, record.offset))
        return "" if letter is None else str(letter["reason"])

    def check_unread(self, record: Record) -> bool:
        """Return whether a record that no decided epoch has read has a dead letter: that is a finding."""
        position = Position(self._topic, record.partition, record.offset)
        if self._by_source.pop(position, None) is None:
            return False
        what = f"record {position} has a dead letter, but no decided epoch has read it"
        self._findings.add(UNDECIDED, what)
        return True

    def check(self, record: Record, reason: str | None, *, late: Late = Late.NO) -> bool:
        """Compare a source record with its dead letter; return whether the job dropped it as late.

        Args:
            record: that an epoch has read.
            reason: how its dead letter must begin; None if the record is valid.
            late: whether the watermark of its epoch made a valid record late.
        """
        position = Position(self._topic, record.partition, record.offset)
        letter = self._by_source.pop(position, None)
        if reason is None and late is Late.YES:
            reason = LATE
        if letter is None:
            if reason is not None:
                self._findings.add(LOST, f"record {position} is {reason} and has no dead letter")
            return reason == LATE
        if reason is None and late is Late.UNKNOWN and letter["reason"].startswith(LATE):
            self.unjudged += 1
            reason = LATE
        if reason is None or not letter["reason"].startswith(reason):
            truth = "is valid and was not late" if reason is None else f"is {reason}"
            stated = f"{letter['reason']!r:.80}"
            self._findings.add(WRONG, f"record {position} {truth}; its dead letter says {stated}")
        digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()
        if letter.get("payload_sha256") != digest:
            self._findings.add(
                WRONG, f"the dead letter of record {position} has another payload's hash"
            )
        self.late += reason == LATE
        return reason == LATE

    def counts(self) -> dict[str, int]:
        """Return how many there are, for `Verification.checked`."""
        unjudged = {"dead letters that cannot be judged any more": self.unjudged}
        return {"dead letters": self.count} | (unjudged if self.unjudged else {})

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
    except (ValueError, RecursionError):
        return None
    return parsed


def utc_time(text: str) -> datetime:
    """Return a time as Spark writes it in JSON; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
