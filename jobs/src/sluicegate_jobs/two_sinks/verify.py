"""Verification of two_sinks: sums the source in plain Python; compares topic, table and epoch records.

Each UUID must be in the topic once. An epoch record must have decided it, unless records are pruned
or a savepoint has moved the job: then its checkpoint does not have them all.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluicegate.packaged_job import Verification
from sluicegate.storage.arrow_encoding import decode_batches
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import ObjectStore
from sluicegate.storage.staging_area import StagingArea
from sluicegate_jobs.two_sinks.job import TwoSinksSettings
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import (
    EMPTY,
    UNPARSED,
    DeadLetters,
    refusing_sink,
    utc_time,
)
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, UNDECIDED, WRONG, Findings
from sluicegate_jobs.verification.json_object import Written, field_text, read_object
from sluicegate_jobs.verification.limits import NO_LIMITS, Refused, SinkLimits

_TIME = re.compile(r"(19|20)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z", re.ASCII)

_INTEGER = re.compile(r"-?[0-9]{1,10}")
"""Of 32 bits. Python refuses to convert more than 4,300 digits."""

_SLOT_TIME = re.compile(r'\\"slot_time\\":\\"([^"\\]+)\\"')
"""In a record of the topic, as a string in JSON."""

Key = tuple[datetime, str, str, str]


@dataclass(frozen=True)
class Delivered:
    """The contents of the sinks: values of the topic, sums of the table, values of the dead letters."""

    kafka: Iterable[bytes | None]
    mysql: Mapping[Key, int]
    letters: Iterable[bytes | None]
    decided: Counter[bytes] | None
    """The values that the epoch records decided for the topic; None if the log does not have them all."""
    limits: SinkLimits = NO_LIMITS


def verify(settings: TwoSinksSettings) -> Verification:
    """Sum the source again and compare it with both sinks, the dead letters and the epoch records."""
    check = Check(settings, settings.source)
    decided = check.decided
    rows = check.table_rows(settings.table, "slot_time, key1, key2, key3, indicate")
    delivered = Delivered(
        check.topic_values(settings.topic),
        {(time.replace(tzinfo=UTC), *keys): int(total) for time, *keys, total in rows},
        check.topic_values(settings.dead_letters),
        decided_values(check.objects, decided.attempts, f"kafka.{settings.topic}")
        if decided.has_all_records
        else None,
        check.limits(topic=settings.topic, table=settings.table),
    )
    compared = compare(check.source(), delivered)
    return check.conclude(compared, settings.table)


def decided_values(objects: ObjectStore, epochs: Iterable[int], sink: str) -> Counter[bytes]:
    """Return the values that epoch records decided for a Kafka sink, without discarded ones."""
    log, area = StoredEpochLog(objects), StagingArea(objects)
    values: Counter[bytes] = Counter()
    for epoch in epochs:
        record = log.read(epoch)
        if record is None or sink in log.discarded(epoch):
            continue
        for chunk in record.chunks:
            if chunk.sink == sink:
                for batch in decode_batches(area.read(chunk)):
                    values.update(batch.column("value").cast("binary").to_pylist())
    return values


def compare(source: SourceRecords, delivered: Delivered) -> Verification:
    """Compare what was delivered with the sums of the source. Pure."""
    findings = Findings()
    dead_letters = DeadLetters(delivered.letters, source.topic, findings, delivered.limits)
    expected: Counter[Key] = Counter()
    for record in source:
        row = read_row(record.value)
        dead_letters.check(record, row if isinstance(row, str) else None)
        if not isinstance(row, str):
            expected[row[0]] += row[1]
    dead_letters.check_none_left()
    for refused in dead_letters.refused:
        key, total = _sum_of(refused)
        expected[key] -= total
        if not expected[key]:
            del expected[key]
    _excuse_truncated(dead_letters, expected, delivered.limits, findings)
    values = Counter(value for value in delivered.kafka if value is not None)
    sums, ids = _topic(values, findings)
    _check_sums("the topic", expected, sums, findings)
    _check_sums("the table", expected, delivered.mysql, findings)
    if delivered.decided is not None:
        for value, count in (delivered.decided - values).items():
            findings.add(LOST, f"decided but not delivered: {value!r:.160}", count)
        for value, count in (values - delivered.decided).items():
            findings.add(UNDECIDED, f"delivered but not decided: {value!r:.160}", count)
    checked = source.counts() | {
        "sums": len(expected),
        "records in Kafka": values.total(),
        "UUIDs": len(ids),
        "UUIDs that the epoch records decided": (delivered.decided or Counter()).total(),
        "rows in MySQL": len(delivered.mysql),
    }
    checked |= dead_letters.counts()
    return Verification(checked, findings.result())


def read_row(value: bytes | None) -> tuple[Key, int] | str:
    """Return a record's key and number, or the first word of the reason why it has none."""
    if value is None:
        return EMPTY
    row = read_object(value) or {}
    texts = [field_text(row, name) for name in ("time", "key1", "key2", "key3")]
    time, key1, key2, key3 = (text or "" for text in texts)
    number = row.get("indicate")
    padded = any(key.endswith(" ") for key in (key1, key2, key3))
    if None in texts or padded or not _TIME.fullmatch(time):
        return UNPARSED
    if not (isinstance(number, Written) and _INTEGER.fullmatch(number)):
        return UNPARSED
    try:
        slot_time = datetime.fromisoformat(time).replace(second=0, microsecond=0)
    except ValueError:
        return UNPARSED  # no such date
    if not -(2**31) <= int(number) < 2**31:
        return UNPARSED
    return (slot_time, key1, key2, key3), int(number)


def _excuse_truncated(
    dead_letters: DeadLetters, expected: Counter[Key], limits: SinkLimits, findings: Findings
) -> None:
    """Drop the sums of keys that a sink refuses and whose dead letters were cut: the numbers are unknown.

    Their hashes cannot be computed either, because each sum has a random UUID.
    """
    excused: set[Key] = set()
    for letter in dead_letters.truncated:
        sink = refusing_sink(letter["reason"]) or ""
        about = {
            key
            for key in expected
            if _begins_with(str(letter["payload"]), key)
            and limits.refuses(sink, _staged(key)) is not Refused.NO
        }
        dead_letters.unjudged += bool(about)
        if not about:
            findings.add(WRONG, f"a dead letter is about no sum: {letter['reason']!r:.80}")
        excused |= about
    for key in excused:
        del expected[key]


def _staged(key: Key) -> list[dict[str, Any]]:
    """Return the columns of a sum for the topic and the table, with some UUID and number."""
    columns = dict(zip(("slot_time", "key1", "key2", "key3"), map(str, key), strict=True))
    row = columns | {"indicate": 0}
    value = json.dumps(row | {"id": "0" * 36}, ensure_ascii=False)
    return [{"key": key[1], "value": value}, row]


def _begins_with(payload: str, key: Key) -> bool:
    """Return whether the payload of a dead letter, which was cut, is the beginning of a sum of a key."""
    known = f'[{{"key": {json.dumps(key[1], ensure_ascii=False)}, "value": '
    if not known.startswith(payload[: len(known)]):
        return False
    time = _SLOT_TIME.search(payload, len(known))
    return time is None or utc_time(time[1]) == key[0]


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
            findings.add(WRONG, f"a record of the topic is not a sum: {value!r:.120}")
            continue
        if count > 1 or name in ids:
            findings.add(DUPLICATED, f"UUID {name} occurs more than once", max(1, count - 1))
        ids.add(name)
        sums[key] += total * count
    return sums, ids


def _sum_of(row: Mapping[str, Any]) -> tuple[Key, int]:
    time = utc_time(str(row["slot_time"]))
    return (time, str(row["key1"]), str(row["key2"]), str(row["key3"])), int(row["indicate"])


def _check_sums(
    where: str, expected: Mapping[Key, int], actual: Mapping[Key, int], findings: Findings
) -> None:
    for key in expected.keys() | actual.keys():
        right, found = expected.get(key), actual.get(key)
        if right == found or (not right and not found):
            continue  # a sum of 0 may be missing: its rows may have been refused
        if found is None:
            findings.add(LOST, f"{where} has no sum of {key}, expected {right}")
        else:
            findings.add(WRONG, f"{where} has {found} for {key}, expected {right or 0}")
