"""Verification of city_lookup: every id that was read is in both sinks with one city, or a dead letter.

It cannot check whether a city was right: the store may have changed since, and only the sinks hold
the answer that was used. So it compares the sinks with each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Record
from sluicegate_jobs.city_lookup.job import CityLookupSettings
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings

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
        {(r.partition, r.offset): _id(r) for r in check.source_records()},
        (_located(record) for record in check.topic_records(settings.topic)),
        (Located((int(p), int(o)), id_, city) for p, o, id_, city in rows),
        (value or b"" for value in check.topic_values(settings.dead_letters)),
        check.decided.covered,
    )
    return check.conclude(compared, settings.table)


def compare(
    source: Mapping[Source, str],
    kafka: Iterable[Located],
    mysql: Iterable[Located],
    letters: Iterable[bytes],
    covered: Mapping[int, int],
) -> Verification:
    """Compare the rows of both sinks with the source and with each other. Pure.

    Args:
        source: the ids; empty for a record without one.
        kafka: the rows of the topic.
        mysql: the rows of the table.
        letters: the values of the dead letters.
        covered: partition -> the first offset that no decided epoch has read.
    """
    findings = Findings()
    sinks = {
        "Kafka": _by_source("Kafka", kafka, findings),
        "MySQL": _by_source("MySQL", mysql, findings),
    }
    dead: set[Source] = set()
    for record in filter(None, (_source_of(letter, findings) for letter in letters)):
        if record in dead:
            findings.add(DUPLICATED, f"{record}: two dead letters")
        dead.add(record)
    unread = 0
    for record, id_ in source.items():
        rows = {name: by_source.get(record) for name, by_source in sinks.items()}
        if record[1] < covered.get(record[0], 0):
            _check(record, id_, rows, dead=record in dead, findings=findings)
        else:
            unread += 1
            if record in dead or any(rows.values()):
                findings.add(UNDECIDED, f"{record}: no decided epoch has read it")
    for record in {*dead, *sinks["Kafka"], *sinks["MySQL"]} - source.keys():
        findings.add(WRONG, f"{record}: the source has no such record")
    checked = {
        "source records": len(source),
        "source records not read yet": unread,
        "records in Kafka": len(sinks["Kafka"]),
        "rows in MySQL": len(sinks["MySQL"]),
        "dead letters": len(dead),
    }
    return Verification(checked, findings.result())


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


def _source_of(value: bytes, findings: Findings) -> Source | None:
    """Return the record that a dead letter is about; staged columns name that of a refused row."""
    letter = json.loads(value)
    if source := letter.get("source"):
        return source["partition"], source["offset"]
    for staged in json.loads(letter["payload"]):
        if "source_offset" in staged:
            return staged["source_partition"], staged["source_offset"]
    findings.add(WRONG, f"a dead letter does not name its record: {value!r:.120}")
    return None


def _id(record: Record) -> str:
    return (record.value or b"").decode(errors="replace").strip(" ")


def _located(record: Record) -> Located:
    row = json.loads(record.value or b"{}")
    return Located((row["source_partition"], row["source_offset"]), row["id"], row["city"])
