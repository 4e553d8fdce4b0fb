"""Verification of kafka_to_kafka: transforms the source in plain Python and compares record by record.

Records with the same key are compared in order, those without a key in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Record
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import DeadLetters, text_of
from sluicegate_jobs.verification.epoch_log import CoveredRecords
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, WRONG, Findings

if TYPE_CHECKING:
    from sluicegate_jobs.kafka_to_kafka.job import KafkaToKafkaSettings

Transform = Callable[[bytes], bytes]

KNOWN: Mapping[str, Transform] = {
    "value": bytes,
    "upper(value)": lambda value: value.decode().upper().encode(),
    "lower(value)": lambda value: value.decode().lower().encode(),
}
"""Transformations that are also known in Python; for others, values are not compared."""


class Copy(NamedTuple):
    """A record as the sink must have it."""

    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def verify(settings: KafkaToKafkaSettings) -> Verification:
    """Transform the source again and compare it with the topic and the dead letters.

    Raises:
        SluicegateError: something cannot be read, nothing was ever decided, or the job ran during the
            check.
    """
    check = Check(settings, settings.source)
    compared = compare(
        (settings.source, check.source_records(), check.decided.covered),
        sorted(check.topic_records(settings.topic), key=lambda r: (r.partition, r.offset)),
        check.topic_values(settings.dead_letters),
        KNOWN.get("".join(settings.transform.split()).lower()),
    )
    return check.conclude(compared)


def compare(
    source: tuple[str, Iterable[Record], Mapping[int, int]],
    sink: Sequence[Record],
    letters: Iterable[bytes | None],
    transform: Transform | None,
) -> Verification:
    """Compare the sink with the transformed source. Pure.

    Args:
        source: its topic, its records in the order of each partition, and how far epochs have read.
        sink: its records in the order of each partition.
        letters: the values of the dead letters.
        transform: of a value; None: values are not compared.
    """
    findings = Findings()
    dead_letters = DeadLetters(letters, findings)
    topic, records, covered = source
    expected: dict[bytes | None, list[Copy]] = {}
    invalid = 0
    source_records = CoveredRecords(records, covered)
    for record in source_records:
        text = text_of(record.value)
        is_invalid = isinstance(text, str) and record.value is not None
        invalid += is_invalid
        dead_letters.check(topic, record, str(text) if is_invalid else None)
        position = (topic, record.partition, record.offset)
        if not is_invalid and position not in dead_letters.refused_sources:
            expected.setdefault(record.key, []).append(_expected_copy(record, transform))
    dead_letters.check_none_left()
    actual: dict[bytes | None, list[Copy]] = {}
    partitions_of: dict[bytes, set[int]] = {}
    for record in sink:
        if record.key is not None:
            partitions_of.setdefault(record.key, set()).add(record.partition)
        value = record.value if transform is not None else b""
        copy = Copy(value, record.headers, record.timestamp_ms)
        actual.setdefault(record.key, []).append(copy)
    for name, partitions in partitions_of.items():
        if len(partitions) > 1:
            findings.add(WRONG, f"key {name!r} is in partitions {sorted(partitions)}")
    for key in expected.keys() | actual.keys():
        _check_key(key, expected.get(key, []), actual.get(key, []), findings)
    checked = {
        "source records": source_records.read,
        "source records not read yet": source_records.unread,
        "keys": len(expected.keys() - {None}),
        "records in the sink": len(sink),
        "records that are not text": invalid,
        "records that the sink refused": len(dead_letters.refused_sources),
        "dead letters": dead_letters.count,
    }
    if transform is None:
        checked["values compared: the transformation is not known to this check"] = 0
    return Verification(checked, findings.result())


def _expected_copy(record: Record, transform: Transform | None) -> Copy:
    if transform is None:
        value: bytes | None = b""
    else:
        value = None if record.value is None else transform(record.value)
    return Copy(value, record.headers, record.timestamp_ms)


def _check_key(
    key: bytes | None, expected: list[Copy], actual: list[Copy], findings: Findings
) -> None:
    expected_counts, actual_counts = Counter(expected), Counter(actual)
    for record, count in (expected_counts - actual_counts).items():
        findings.add(LOST, f"key {key!r}: {record!r:.100}", count)
    for record, count in (actual_counts - expected_counts).items():
        kind = DUPLICATED if record in expected_counts else WRONG
        findings.add(kind, f"key {key!r}: {record!r:.100}", count)
    if actual_counts == expected_counts and key is not None:
        for index, (right, there) in enumerate(zip(expected, actual, strict=True)):
            if right != there:
                findings.add(WRONG, f"key {key!r}: record {index} is out of order: {there!r:.100}")
                return
