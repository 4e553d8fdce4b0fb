"""Verification of city_lookup: every id that was read is in both sinks with one city, or a dead letter.

It cannot check whether a city was right, or whether an id was really unknown: the store may have
changed since. So it compares the sinks with each other, and a dead letter with its record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sluicegate.dead_letters.letter import SHORT_REASON
from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Position, Record
from sluicegate_jobs.city_lookup.job import CityLookupSettings
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import EMPTY, DeadLetters, Refusal
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings
from sluicegate_jobs.verification.limits import NO_LIMITS, Refused, SinkLimits

_UNANSWERED: Final = "lookup into city: unanswered"

Source = tuple[int, int]
"""Partition and offset of a record of the source."""


class Located(NamedTuple):
    """A row of a sink: its source record, the id and its city."""

    source: Source
    id: str
    city: str


def verify(settings: CityLookupSettings) -> Verification:
    """Compare source, sinks and dead letters."""
    check = Check(settings, settings.source)
    rows = check.table_rows(settings.table, "source_partition, source_offset, id, city")
    compared = compare(
        check.source(),
        (_located(record) for record in check.topic_records(settings.topic)),
        (Located((int(p), int(o)), id_, city) for p, o, id_, city in rows),
        check.topic_values(settings.dead_letters),
        Answers(settings.cities, may_be_missing=settings.on_timeout == "dead-letter"),
        check.limits(topic=settings.topic, table=settings.table),
    )
    return check.conclude(compared, settings.table)


class Answers(NamedTuple):
    """What the store may have answered for an id that has no city.

    Args:
        cities: the hash, which a dead letter must name.
        may_be_missing: whether a row without an answer becomes a dead letter (`on_timeout`).
    """

    cities: str
    may_be_missing: bool = False

    def of(self, id_: str, stated: str) -> str | None:
        """Return how the dead letter of a record must begin, None if it must have none.

        Args:
            id_: of the record, empty if it has none.
            stated: the reason in its dead letter, empty if there is none.
        """
        if not id_:
            return EMPTY
        unknown = f"unknown: hash {self.cities} has no id {id_}"
        may_be_cut = len(stated) >= SHORT_REASON
        is_unknown = unknown.startswith(stated) if may_be_cut else stated == unknown
        unanswered = self.may_be_missing and stated.startswith(_UNANSWERED)
        return stated if is_unknown or unanswered else None


def compare(
    source: SourceRecords,
    kafka: Iterable[Located],
    mysql: Iterable[Located],
    letters: Iterable[bytes | None],
    answers: Answers,
    limits: SinkLimits = NO_LIMITS,
) -> Verification:
    """Compare the rows of both sinks with the source and with each other. Pure.

    Args:
        source: the records whose values are ids.
        kafka: the rows of the topic.
        mysql: the rows of the table.
        letters: the values of the dead letters.
        answers: what the store may have answered.
        limits: of the sinks: a row that they accept is no dead letter.
    """
    findings = Findings()
    sinks = {
        "Kafka": _by_source("Kafka", kafka, findings),
        "MySQL": _by_source("MySQL", mysql, findings),
    }
    dead_letters = DeadLetters(letters, source.topic, findings, limits)
    refused = _refused(dead_letters, source.topic, findings)
    without_city, known = 0, set()
    for record, was_read in source.with_unread():
        at = (record.partition, record.offset)
        known.add(at)
        rows = {name: by_source.get(at) for name, by_source in sinks.items()}
        if not was_read:
            dead_letters.check_unread(record)
            if at in refused or any(rows.values()):
                findings.add(UNDECIDED, f"{at}: no decided epoch has read it")
            continue
        id_ = _id(record)
        reason = answers.of(id_, dead_letters.reason_of(record))
        dead_letters.check(record, reason)
        without_city += bool(id_ and reason)
        refusal = dead_letters.refused_sources.get(Position(source.topic, *at))
        if refusal is not None:
            verdict = _judge(refusal, id_, limits)
            dead_letters.note_refused(verdict, refusal.sink, f"record {at}")
        _check(at, id_, rows, dead=reason is not None or at in refused, findings=findings)
    dead_letters.check_none_left()
    for at in {*refused, *sinks["Kafka"], *sinks["MySQL"]} - known:
        findings.add(WRONG, f"{at}: the source has no such record")
    checked = source.counts() | {
        "records in Kafka": len(sinks["Kafka"]),
        "rows in MySQL": len(sinks["MySQL"]),
    }
    checked |= dead_letters.counts()
    checked["ids without a city, as the store answered then"] = without_city
    return Verification(checked, findings.result())


def _judge(refusal: Refusal, id_: str, limits: SinkLimits) -> Refused:
    """Return whether the sink refuses a row; if it was cut, only the id is known, and not the city."""
    if refusal.rows:
        return limits.refuses(refusal.sink, refusal.rows)
    verdict = limits.refuses(refusal.sink, [{"id": id_}, {"key": id_, "value": id_}])
    return verdict if verdict is Refused.YES else Refused.UNKNOWN


def _refused(dead_letters: DeadLetters, topic: str, findings: Findings) -> set[Source]:
    """Return the records whose rows a sink refused: the staged columns or the source name them."""
    refused: set[Source] = set()
    for row in dead_letters.refused:
        at = row.get("source_partition"), row.get("source_offset")
        if not isinstance(at[0], int) or not isinstance(at[1], int):
            findings.add(WRONG, f"the dead letter of a refused row names no record: {row!r:.120}")
            continue
        if at in refused:
            findings.add(DUPLICATED, f"{at}: two dead letters")
        refused.add((at[0], at[1]))
    of_topic = (at for at in dead_letters.refused_sources if at.topic == topic)
    refused |= {(at.partition, at.offset) for at in of_topic}
    for letter in dead_letters.truncated:
        if isinstance(letter.get("source"), dict):
            continue
        reason = letter["reason"]
        findings.add(
            WRONG, f"the dead letter of a refused row is cut, so its record is unknown: {reason}"
        )
    return refused


def _check(
    record: Source, id_: str, rows: Mapping[str, Located | None], *, dead: bool, findings: Findings
) -> None:
    """Check one record that was read: the same in both sinks, or only a dead letter."""
    found = {name: row for name, row in rows.items() if row is not None}
    if dead:
        for name in found:
            findings.add(WRONG, f"{record}: a dead letter, but also in {name}")
        return
    for name in rows.keys() - found.keys():
        findings.add(LOST, f"{record}: id {id_!r} is neither in {name} nor a dead letter")
    for name, row in found.items():
        if row.id != id_:
            findings.add(WRONG, f"{record}: id {id_!r} in the source, {row.id!r} in {name}")
    if len({row.city for row in found.values()}) > 1:
        findings.add(WRONG, f"{record}: Kafka and MySQL have different cities: {found}")


def _by_source(sink: str, rows: Iterable[Located], findings: Findings) -> dict[Source, Located]:
    by_source: dict[Source, Located] = {}
    for row in rows:
        if row.source in by_source:
            findings.add(
                DUPLICATED, f"{row.source}: twice in {sink}: {by_source[row.source]}, {row}"
            )
        by_source[row.source] = row
    return by_source


def _id(record: Record) -> str:
    return (record.value or b"").decode(errors="replace").strip(" ")


def _located(record: Record) -> Located:
    row = json.loads(record.value or b"{}")
    return Located((row["source_partition"], row["source_offset"]), row["id"], row["city"])
