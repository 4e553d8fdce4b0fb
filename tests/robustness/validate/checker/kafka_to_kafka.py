"""The judge of kafka_to_kafka with its default transformation, `upper(value)`, and partitions by key. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.robustness.validate.checker.history import (
    ALTERED,
    History,
    Letters,
    Limits,
    Record,
    Report,
    compare_counts,
)

Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
"""Key, value, headers and time of a record."""


def check_kafka_to_kafka(history: History) -> Report:
    """Every record is once in the topic, in the order of its key, or a dead letter if it is not text."""
    report = Report()
    letters = Letters(history, Limits(), report)
    copies: list[Record] = []
    for record in history.source:
        try:
            value = None if record.value is None else record.value.decode().upper().encode()
        except UnicodeDecodeError:
            letters.judge(record, "unparsed")
            continue
        if not letters.judge(record, ""):
            copies.append(record._replace(value=value))
    letters.finish()
    expected, found = _contents(copies), _contents(history.topic)
    counts = Counter(_all(expected)), Counter(_all(found))
    compare_counts("topic", *counts, report)
    for key, contents in found.items():
        if key is not None and counts[0] == counts[1] and contents != expected[key]:
            report.add(ALTERED, "topic: the order of a key")
    partitions = {(record.key, record.partition) for record in history.topic if record.key}
    if len(partitions) > len({key for key, _ in partitions}):
        report.add(ALTERED, "topic: a key in several partitions")
    return report


def _contents(records: Iterable[Record]) -> dict[bytes | None, list[Content]]:
    """Return the contents of the records by key, in their order."""
    contents: dict[bytes | None, list[Content]] = defaultdict(list)
    for record in records:
        content = record.key, record.value, record.headers, record.timestamp_ms
        contents[record.key].append(content)
    return contents


def _all(contents: dict[bytes | None, list[Content]]) -> Iterable[Content]:
    return (content for of_key in contents.values() for content in of_key)
