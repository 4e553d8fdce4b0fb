"""The check of city_lookup: every id that was read is in both sinks with one city, or a dead letter.

Without Spark. What it cannot say is whether a city was right: the store may have changed since, and
the answer that was used is only in the sinks; so they are compared with each other. Nothing is
written anywhere. Called by `sluicegate verify` and the tests, while the job is stopped or idle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pymysql.cursors import SSCursor

from sluicegate.cli.job import Verification
from sluicegate.sinks.kafka.access import servers_of
from sluicegate.sinks.mysql.session import Address, connect, quoted
from sluicegate.storage.objects import open_objects
from sluicegate_jobs.decided import read_decided
from sluicegate_jobs.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings
from sluicegate_jobs.kafka_reader import Record, TopicReader

if TYPE_CHECKING:
    from sluicegate_jobs.city_lookup import CityLookupSettings

_TIMEOUT_S = 120.0

Where = tuple[int, int]
"""Partition and offset of a record of the source."""


class Located(NamedTuple):
    """A row of a sink: the id, and the city that was found."""

    where: Where
    id: str
    city: str


def verify(settings: CityLookupSettings) -> Verification:
    """Compare source, sinks and dead letters.

    Raises:
        SluicegateError: something could not be read.
    """
    servers = servers_of(settings.kafka)
    decided = read_decided(open_objects(settings.checkpoint), settings.source)
    return compare(
        {(r.partition, r.offset): _id(r) for r in TopicReader(servers, settings.source)},
        (_located(record) for record in TopicReader(servers, settings.topic)),
        _table(Address.parse(settings.mysql or None), settings.table),
        (record.value or b"" for record in TopicReader(servers, settings.dead_letters)),
        decided.covered,
    )


def compare(
    source: Mapping[Where, str],
    kafka: Iterable[Located],
    mysql: Iterable[Located],
    letters: Iterable[bytes],
    covered: Mapping[int, int],
) -> Verification:
    """Compare what was read.

    Args:
        source: the ids, empty where a record has none.
        kafka: the rows of the topic; one twice is a finding.
        mysql: the rows of the table.
        letters: the values of the dead letters.
        covered: partition -> the first offset that no decided epoch has read.
    """
    findings = Findings()
    sinks = {"Kafka": _once("Kafka", kafka, findings), "MySQL": _once("MySQL", mysql, findings)}
    buried: set[Where] = set()
    for where in filter(None, (_buried(letter, findings) for letter in letters)):
        if where in buried:
            findings.add(DUPLICATED, f"{where}: two dead letters")
        buried.add(where)
    unread = 0
    for where, id_ in source.items():
        if where[1] < covered.get(where[0], 0):
            _check(where, id_, {name: rows.get(where) for name, rows in sinks.items()},
                   buried=where in buried, findings=findings)  # fmt: skip
        else:
            unread += 1
            if where in buried or any(where in rows for rows in sinks.values()):
                findings.add(UNDECIDED, f"{where}: no decided epoch has read it")
    for where in {*buried, *sinks["Kafka"], *sinks["MySQL"]} - source.keys():
        findings.add(WRONG, f"{where}: there is no such record in the source")
    checked = {
        "source records": len(source),
        "source records not read yet": unread,
        "records in Kafka": len(sinks["Kafka"]),
        "rows in MySQL": len(sinks["MySQL"]),
        "dead letters": len(buried),
    }
    return Verification(checked, findings.found())


def _check(
    where: Where, id_: str, rows: Mapping[str, Located | None], *, buried: bool, findings: Findings
) -> None:
    """Check one record that was read: in both sinks alike, or only a dead letter."""
    there = {name: row for name, row in rows.items() if row is not None}
    if buried:
        for name in there:
            findings.add(WRONG, f"{where}: a dead letter, and in {name} too")
        return
    for name in rows.keys() - there.keys():
        findings.add(LOST, f"{where}: id {id_!r} is not in {name}, and no dead letter")
    for name, row in there.items():
        if row.id != id_:
            findings.add(WRONG, f"{where}: id {id_!r} in the source, {row.id!r} in {name}")
    if len({row.city for row in there.values()}) > 1:
        findings.add(WRONG, f"{where}: another city in Kafka than in MySQL: {there}")


def _once(sink: str, rows: Iterable[Located], findings: Findings) -> dict[Where, Located]:
    found: dict[Where, Located] = {}
    for row in rows:
        if row.where in found:
            findings.add(DUPLICATED, f"{row.where}: twice in {sink}: {found[row.where]}, {row}")
        found[row.where] = row
    return found


def _buried(value: bytes, findings: Findings) -> Where | None:
    """Return the record that a dead letter is about."""
    letter = json.loads(value)
    about = letter.get("source") or _staged(letter)
    if about is None:
        findings.add(WRONG, f"a dead letter does not say what it is about: {value!r:.120}")
        return None
    return about["partition"], about["offset"]


def _staged(letter: Mapping[str, Any]) -> dict[str, int] | None:
    """Return where the row of a letter came from that a sink refused: from the staged columns."""
    for staged in json.loads(letter["payload"]):
        if "source_offset" in staged:
            return {"partition": staged["source_partition"], "offset": staged["source_offset"]}
    return None


def _id(record: Record) -> str:
    return (record.value or b"").decode(errors="replace").strip(" ")


def _located(record: Record) -> Located:
    row = json.loads(record.value or b"{}")
    return Located((row["source_partition"], row["source_offset"]), row["id"], row["city"])


def _table(database: Address, table: str) -> Iterator[Located]:
    connection = connect(database, timeout_s=_TIMEOUT_S)
    try:
        with connection.cursor(SSCursor) as cursor:
            cursor.execute(
                f"SELECT source_partition, source_offset, id, city FROM {quoted(table)}"  # noqa: S608
            )
            while rows := cursor.fetchmany(10_000):
                yield from (Located((int(p), int(o)), i, c) for p, o, i, c in rows)
    finally:
        connection.close()
