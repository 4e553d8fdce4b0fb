"""Verification of kafka_to_kafka: transforms the source in plain Python and compares record by record.

Records with the same key are compared in order, those without a key in any order. If the job keeps the
partitions, all records of a partition are compared in order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Position, Record
from sluicegate_jobs.kafka_to_kafka.job import SAME, KafkaToKafkaSettings
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import UNPARSED, DeadLetters, Refusal, text_of
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, WRONG, Findings
from sluicegate_jobs.verification.limits import NO_LIMITS, Refused, SinkLimits

Transform = Callable[[bytes], bytes]

KNOWN: Mapping[str, Transform] = {
    "value": bytes,
    "upper(value)": lambda value: value.decode().upper().encode(),
    "lower(value)": lambda value: value.decode().lower().encode(),
}
"""Transformations that are also known in Python; for others, values are not compared."""

_TIME_LIMIT = "message.timestamp.after.max.ms"
"""Whether a record was ahead of this limit when it was refused is not known later."""


_PARTITION = re.compile(r"asks for partition (\d+) and topic \S+ has (\d+), from 0")
_GIVES_NULL = "unparsed: the transformation gives null"

_ANY_TIME = 0
"""The time of a source record without a time, or with one before 1970: its copy has the time of writing."""

Group = bytes | int | None
"""Records that are compared in order: those of a key or of a partition; None: in any order."""


class Copy(NamedTuple):
    """A record as the sink must have it; the time `_ANY_TIME` is that of writing."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def verify(settings: KafkaToKafkaSettings) -> Verification:
    """Transform the source again and compare it with the topic and the dead letters."""
    check = Check(settings, settings.source)
    compared = compare(
        check.source(),
        sorted(check.topic_records(settings.topic), key=lambda r: (r.partition, r.offset)),
        check.topic_values(settings.dead_letters),
        KNOWN.get("".join(settings.transform.split()).lower()),
        check.limits(topic=settings.topic),
        same_partition=settings.partitions == SAME,
    )
    return check.conclude(compared)


def compare(
    source: SourceRecords,
    sink: Sequence[Record],
    letters: Iterable[bytes | None],
    transform: Transform | None,
    limits: SinkLimits = NO_LIMITS,
    *,
    same_partition: bool = False,
) -> Verification:
    """Compare the sink with the transformed source; without `transform`, ignoring values. Pure.

    The records of the sink must be in the order of each partition. With `same_partition` a record must
    be in the partition of its source; otherwise all records of a key must be in one.
    """
    findings = Findings()
    dead_letters = DeadLetters(letters, source.topic, findings, limits)
    expected: dict[Group, list[Copy]] = {}
    keys: set[bytes] = set()

    def group_of(record: Record) -> Group:
        return record.partition if same_partition else record.key

    invalid = 0
    refused_sources = dict(dead_letters.refused_sources)
    for record in source:
        text = text_of(record.value)
        is_invalid = isinstance(text, str) and record.value is not None
        invalid += is_invalid
        reason = str(text) if is_invalid else None
        if transform is None and record.value is not None:
            nulled = dead_letters.reason_of(record).startswith(_GIVES_NULL)
            dead_letters.unjudged += (
                nulled and not is_invalid
            )  # only the job knows its transformation
            is_invalid, reason = is_invalid or nulled, UNPARSED if nulled else reason
        dead_letters.check(record, reason)
        position = Position(source.topic, record.partition, record.offset)
        refusal = refused_sources.pop(position, None)
        if not is_invalid and refusal is None:
            expected.setdefault(group_of(record), []).append(_copy(record, transform))
            keys |= set() if record.key is None else {record.key}
        elif refusal is not None:
            refused = _judge(refusal, record, transform, limits, same_partition=same_partition)
            dead_letters.note_refused(refused, refusal.sink, f"record {position}")
    dead_letters.check_none_left()
    _check_none_left(refused_sources, findings)
    actual: dict[Group, list[Copy]] = {}
    for record in sink:
        copy = _copy(record, None if transform is None else bytes)
        actual.setdefault(group_of(record), []).append(copy)
    if not same_partition:
        _check_partitions_of_keys(sink, findings)
    for group in expected.keys() | actual.keys():
        right = expected.get(group, [])
        _check_group(group, right, _with_any_time(right, actual.get(group, [])), findings)
    checked = source.counts() | {
        "keys": len(keys),
        "records in the sink": len(sink),
        "records that are not text": invalid,
        "records that the sink refused": len(dead_letters.refused_sources),
    }
    checked |= dead_letters.counts()
    if transform is None:
        checked["values compared: the transformation is not known to this check"] = 0
    return Verification(checked, findings.result())


def _check_none_left(refused_sources: Iterable[Position], findings: Findings) -> None:
    for position in refused_sources:
        what = (
            f"a row of record {position} was refused, but no decided epoch has read such a record"
        )
        findings.add(WRONG, what)


def _copy(record: Record, transform: Transform | None) -> Copy:
    value = record.value if transform is not None else b""
    if transform is not None and value is not None:
        value = transform(value)
    return Copy(record.key, value, record.headers, max(record.timestamp_ms, _ANY_TIME))


def _with_any_time(expected: list[Copy], actual: list[Copy]) -> list[Copy]:
    """Return the actual copies; those whose source may have any time get `_ANY_TIME`."""
    undated = Counter(copy for copy in expected if copy.timestamp_ms == _ANY_TIME)
    if not undated:
        return actual
    surplus, copies = Counter(actual) - Counter(expected), []
    for dated in actual:
        copy = dated._replace(timestamp_ms=_ANY_TIME)
        if surplus[dated] > 0 and undated[copy] > 0:
            surplus[dated] -= 1
            undated[copy] -= 1
            copies.append(copy)
        else:
            copies.append(dated)
    return copies


def _judge(
    refusal: Refusal,
    record: Record,
    transform: Transform | None,
    limits: SinkLimits,
    *,
    same_partition: bool,
) -> Refused:
    """Return whether the sink's topic refuses the record that is made of a source record."""
    topic = limits.topics.get(refusal.sink)
    if topic is None:
        return Refused.NO
    asked = _PARTITION.search(refusal.reason)
    if asked is not None:
        absent = int(asked[1]) == record.partition >= int(asked[2]) > 0
        return Refused.YES if same_partition and absent else Refused.NO
    if _TIME_LIMIT in refusal.reason or (record.value is not None and transform is None):
        return Refused.UNKNOWN
    value = None if record.value is None or transform is None else transform(record.value)
    return topic.refuses(record.key, value, record.headers)


def _check_partitions_of_keys(sink: Sequence[Record], findings: Findings) -> None:
    partitions_of: dict[bytes, set[int]] = {}
    for record in sink:
        if record.key is not None:
            partitions_of.setdefault(record.key, set()).add(record.partition)
    for key, partitions in partitions_of.items():
        if len(partitions) > 1:
            findings.add(WRONG, f"key {key!r} is in partitions {sorted(partitions)}")


def _check_group(
    group: Group, expected: list[Copy], actual: list[Copy], findings: Findings
) -> None:
    name = f"partition {group}" if isinstance(group, int) else f"key {group!r}"
    expected_counts, actual_counts = Counter(expected), Counter(actual)
    for record, count in (expected_counts - actual_counts).items():
        findings.add(LOST, f"{name}: {record!r:.100}", count)
    for record, count in (actual_counts - expected_counts).items():
        kind = DUPLICATED if record in expected_counts else WRONG
        findings.add(kind, f"{name}: {record!r:.100}", count)
    if actual_counts == expected_counts and group is not None:
        for index, (right, there) in enumerate(zip(expected, actual, strict=True)):
            if right != there:
                findings.add(WRONG, f"{name}: record {index} is out of order: {there!r:.100}")
                return
