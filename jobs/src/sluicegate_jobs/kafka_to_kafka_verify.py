"""The check of kafka_to_kafka: transforms the source in plain Python and compares record by record.

Records of a key are compared in their order, those without a key as a heap. Nothing is written
anywhere. Called by `sluicegate verify`, while the job is stopped or idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from sluicegate.cli.job import Verification
from sluicegate.sinks.kafka.access import servers_of
from sluicegate.storage.objects import open_objects
from sluicegate_jobs.decided import concluded, counted, held_by, read_decided, whole
from sluicegate_jobs.findings import DUPLICATED, LOST, WRONG, Findings
from sluicegate_jobs.kafka_reader import Record
from sluicegate_jobs.letters import Letters, text_of

if TYPE_CHECKING:
    from sluicegate_jobs.kafka_to_kafka import KafkaToKafkaSettings

Transform = Callable[[bytes], bytes]

KNOWN: Mapping[str, Transform] = {
    "value": bytes,
    "upper(value)": lambda value: value.decode().upper().encode(),
    "lower(value)": lambda value: value.decode().lower().encode(),
}
"""Transformations that are known in Python too; of others the values are not compared."""


class Copied(NamedTuple):
    """What a record is like in the sink."""

    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def verify(settings: KafkaToKafkaSettings) -> Verification:
    """Transform the source again and compare the topic and the dead letters.

    Raises:
        SluicegateError: something could not be read, nothing was ever decided, or the job went on
            meanwhile.
    """
    decided = read_decided(open_objects(settings.checkpoint), settings.source)
    servers = servers_of(settings.kafka)
    seen: dict[str, int] = {}
    compared = compare(
        (settings.source, whole(servers, settings.source), decided.covered),
        sorted(counted(servers, settings.topic, seen), key=lambda r: (r.partition, r.offset)),
        (r.value for r in counted(servers, settings.dead_letters, seen)),
        KNOWN.get("".join(settings.transform.split()).lower()),
    )
    held = held_by(decided, seen, servers)
    return concluded(settings.checkpoint, decided, compared, held)


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
    filed = Letters(letters, findings)
    topic, records, covered = source
    expected: dict[bytes | None, list[Copied]] = {}
    read = unread = broken = 0
    for record in records:
        if record.offset >= covered.get(record.partition, 0):
            unread += 1
            continue
        read += 1
        text = text_of(record.value)
        bad = isinstance(text, str) and record.value is not None
        broken += bad
        filed.check(topic, record, str(text) if bad else None)
        if not bad and (topic, record.partition, record.offset) not in filed.refused_at:
            expected.setdefault(record.key, []).append(_copied(record, transform))
    filed.check_none_left()
    found: dict[bytes | None, list[Copied]] = {}
    homes: dict[bytes, set[int]] = {}
    for record in sink:
        if record.key is not None:
            homes.setdefault(record.key, set()).add(record.partition)
        value = record.value if transform is not None else b""
        kept = Copied(value, record.headers, record.timestamp_ms)
        found.setdefault(record.key, []).append(kept)
    for name, partitions in homes.items():
        if len(partitions) > 1:
            findings.add(WRONG, f"key {name!r} is in partitions {sorted(partitions)}")
    for key in expected.keys() | found.keys():
        _check_key(key, expected.get(key, []), found.get(key, []), findings)
    checked = {
        "source records": read,
        "source records not read yet": unread,
        "keys": len(expected.keys() - {None}),
        "records in the sink": len(sink),
        "records that are no text": broken,
        "records that the sink refused": len(filed.refused_at),
        "dead letters": filed.count,
    }
    if transform is None:
        checked["values compared: the transformation is not known to this check"] = 0
    return Verification(checked, findings.found())


def _copied(record: Record, transform: Transform | None) -> Copied:
    if transform is None:
        value: bytes | None = b""
    else:
        value = None if record.value is None else transform(record.value)
    return Copied(value, record.headers, record.timestamp_ms)


def _check_key(
    key: bytes | None, expected: list[Copied], found: list[Copied], findings: Findings
) -> None:
    more, less = Counter(found), Counter(expected)
    for record, count in (less - more).items():
        findings.add(LOST, f"key {key!r}: {record!r:.100}", count)
    for record, count in (more - less).items():
        kind = DUPLICATED if record in less else WRONG
        findings.add(kind, f"key {key!r}: {record!r:.100}", count)
    if more == less and key is not None:
        for place, (right, there) in enumerate(zip_longest(expected, found)):
            if right != there:
                findings.add(WRONG, f"key {key!r}: record {place} is out of order: {there!r:.100}")
                return
