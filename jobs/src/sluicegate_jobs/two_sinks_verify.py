"""The check of two_sinks: sums its source in plain Python and compares topic, table and epoch records.

Each UUID must be in the topic once, and be one that an epoch record decided. Nothing is written
anywhere. Called by `sluicegate verify`, while the job is stopped or idle.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluicegate.cli.job import Verification
from sluicegate.sinks.chunks import unpack
from sluicegate.sinks.kafka.access import servers_of
from sluicegate.sinks.mysql.session import Address
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import Objects, open_objects
from sluicegate.storage.staging import StagingArea
from sluicegate_jobs.decided import (
    concluded,
    counted,
    held_by,
    read_decided,
    table_rows,
    whole,
)
from sluicegate_jobs.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings
from sluicegate_jobs.kafka_reader import Record
from sluicegate_jobs.letters import EMPTY, UNPARSED, Letters

if TYPE_CHECKING:
    from sluicegate_jobs.two_sinks import TwoSinksSettings

_TIME = re.compile(r"(19|20)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z", re.ASCII)

Key = tuple[datetime, str, str, str]


@dataclass(frozen=True)
class Delivered:
    """What the sinks hold.

    Args:
        kafka: values of the topic.
        mysql: key -> sum.
        letters: values of the dead letters.
        decided: values that the kept epoch records decided for the topic; None where some are pruned.
    """

    kafka: Iterable[bytes | None]
    mysql: Mapping[Key, int]
    letters: Iterable[bytes | None]
    decided: Counter[bytes] | None


def verify(settings: TwoSinksSettings) -> Verification:
    """Sum the source again and compare both sinks, the dead letters and the epoch records.

    Raises:
        SluicegateError: something could not be read, nothing was ever decided, or the job went on
            meanwhile.
    """
    objects = open_objects(settings.checkpoint)
    decided = read_decided(objects, settings.source)
    servers, database = servers_of(settings.kafka), Address.parse(settings.mysql or None)
    seen: dict[str, int] = {}
    rows = table_rows(database, settings.table, "slot_time, key1, key2, key3, indicate")
    delivered = Delivered(
        (r.value for r in counted(servers, settings.topic, seen)),
        {(at.replace(tzinfo=UTC), *keys): int(total) for at, *keys, total in rows},
        (r.value for r in counted(servers, settings.dead_letters, seen)),
        None
        if decided.rows is None
        else decided_values(objects, decided.attempts, f"kafka.{settings.topic}"),
    )
    source = whole(servers, settings.source)
    compared = compare(settings.source, source, decided.covered, delivered)
    held = held_by(decided, seen, servers, settings.table, database)
    return concluded(settings.checkpoint, decided, compared, held)


def decided_values(objects: Objects, epochs: Iterable[int], sink: str) -> Counter[bytes]:
    """Return the values that epoch records decided for a Kafka sink, discarded ones left out."""
    log, area = StoredEpochLog(objects), StagingArea(objects)
    values: Counter[bytes] = Counter()
    for epoch in epochs:
        record = log.read(epoch)
        if record is None or sink in log.discarded(epoch):
            continue
        for chunk in record.chunks:
            if chunk.sink == sink:
                for batch in unpack(area.read(chunk)):
                    values.update(_bytes(value) for value in batch.column("value").to_pylist())
    return values


def compare(
    topic: str, source: Iterable[Record], covered: Mapping[int, int], delivered: Delivered
) -> Verification:
    """Compare what was delivered with the sums of the source. Pure.

    Args:
        topic: of the source.
        source: its records, those that no epoch has read too.
        covered: partition -> the first offset that no decided epoch has read.
        delivered: what the sinks hold.
    """
    findings = Findings()
    filed = Letters(delivered.letters, findings)
    expected: Counter[Key] = Counter()
    read = unread = 0
    for record in source:
        if record.offset >= covered.get(record.partition, 0):
            unread += 1
            continue
        read += 1
        row = read_row(record.value)
        filed.check(topic, record, row if isinstance(row, str) else None)
        if not isinstance(row, str):
            expected[row[0]] += row[1]
    filed.check_none_left()
    for refused in filed.refused:
        key, total = _sum_of(refused)
        expected[key] -= total
        if not expected[key]:
            del expected[key]
    values = Counter(value for value in delivered.kafka if value is not None)
    sums, ids = _topic(values, findings)
    _same("the topic", expected, sums, findings)
    _same("the table", expected, delivered.mysql, findings)
    if delivered.decided is not None:
        for value, count in (delivered.decided - values).items():
            findings.add(LOST, f"decided and not delivered: {value!r:.160}", count)
        for value, count in (values - delivered.decided).items():
            findings.add(UNDECIDED, f"delivered and not decided: {value!r:.160}", count)
    checked = {
        "source records": read,
        "source records not read yet": unread,
        "sums": len(expected),
        "records in Kafka": values.total(),
        "UUIDs": len(ids),
        "UUIDs that the epoch records decided": (delivered.decided or Counter()).total(),
        "rows in MySQL": len(delivered.mysql),
        "dead letters": filed.count,
    }
    return Verification(checked, findings.found())


def read_row(value: bytes | None) -> tuple[Key, int] | str:
    """Return a record's key and number, or how the reason begins why it has none."""
    if value is None:
        return EMPTY
    try:
        row = json.loads(value)
        keys = (row["key1"], row["key2"], row["key3"])
        time, indicate = row["time"], row["indicate"]
        if not _TIME.fullmatch(time) or not isinstance(indicate, int):
            return UNPARSED
        at = datetime.fromisoformat(time)
    except (ValueError, KeyError, TypeError):
        return UNPARSED
    return (at.replace(second=0, microsecond=0), *keys), indicate


def _topic(values: Counter[bytes], findings: Findings) -> tuple[Counter[Key], set[str]]:
    """Return the sums of the topic's records and their UUIDs."""
    sums: Counter[Key] = Counter()
    ids: set[str] = set()
    for value, count in values.items():
        try:
            row = json.loads(value)
            key, total = _sum_of(row)
            name = str(row["id"])
        except (ValueError, KeyError, TypeError):
            findings.add(WRONG, f"a record of the topic is no sum: {value!r:.120}")
            continue
        if count > 1 or name in ids:
            findings.add(DUPLICATED, f"UUID {name} is there more than once", max(1, count - 1))
        ids.add(name)
        sums[key] += total * count
    return sums, ids


def _sum_of(row: Mapping[str, Any]) -> tuple[Key, int]:
    at = datetime.fromisoformat(str(row["slot_time"]))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at, str(row["key1"]), str(row["key2"]), str(row["key3"])), int(row["indicate"])


def _same(
    where: str, expected: Mapping[Key, int], found: Mapping[Key, int], findings: Findings
) -> None:
    for key in expected.keys() | found.keys():
        right, there = expected.get(key), found.get(key)
        if right == there or (not right and not there):
            continue  # a sum of 0 may be there or not: its rows may have been refused
        if there is None:
            findings.add(LOST, f"{where} has nothing of {key}, the source makes {right}")
        else:
            findings.add(WRONG, f"{where} has {there} of {key}, the source makes {right or 0}")


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
