"""The check of word_count: counts the words of its source in plain Python and compares the table.

Nothing is written anywhere. Called by `sluicegate verify`, while the job is stopped or idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sluicegate.cli.job import Verification
from sluicegate.sinks.kafka.access import servers_of
from sluicegate.sinks.mysql.session import Address
from sluicegate.storage.objects import open_objects
from sluicegate_jobs.decided import (
    concluded,
    counted,
    held_by,
    read_decided,
    table_rows,
    whole,
)
from sluicegate_jobs.findings import DUPLICATED, LOST, WRONG, Findings
from sluicegate_jobs.kafka_reader import Record
from sluicegate_jobs.letters import Letters, text_of

if TYPE_CHECKING:
    from sluicegate_jobs.word_count import WordCountSettings

SPACE = b" \t\n\x0b\x0c\r"
"""What separates words: Java's \\s."""

LONGEST_WORD = 255
"""Characters that the table's key takes."""


def verify(settings: WordCountSettings) -> Verification:
    """Count the words again and compare the table and the dead letters.

    Raises:
        SluicegateError: something could not be read, nothing was ever decided, or the job went on
            meanwhile.
    """
    decided = read_decided(open_objects(settings.checkpoint), settings.source)
    servers, database = servers_of(settings.kafka), Address.parse(settings.mysql or None)
    seen: dict[str, int] = {}
    compared = compare(
        settings.source,
        whole(servers, settings.source),
        decided.covered,
        dict(table_rows(database, settings.table, "word, count")),
        (r.value for r in counted(servers, settings.dead_letters, seen)),
    )
    held = held_by(decided, seen, servers, settings.table, database)
    return concluded(settings.checkpoint, decided, compared, held)


def compare(
    topic: str,
    source: Iterable[Record],
    covered: Mapping[int, int],
    table: Mapping[str, int],
    letters: Iterable[bytes | None],
) -> Verification:
    """Compare the table with the words of the source. Pure.

    Args:
        topic: of the source.
        source: its records, those that no epoch has read too.
        covered: partition -> the first offset that no decided epoch has read.
        table: word -> count.
        letters: the values of the dead letters.
    """
    findings = Findings()
    filed = Letters(letters, findings)
    words: Counter[str] = Counter()
    read = unread = 0
    for record in source:
        if record.offset >= covered.get(record.partition, 0):
            unread += 1
            continue
        read += 1
        text = text_of(record.value)
        broken = None if isinstance(text, bytes) else text
        filed.check(topic, record, broken)
        if isinstance(text, bytes):
            words.update(word.decode() for word in text.translate(_TO_BLANK).split(b" ") if word)
    filed.check_none_left()
    too_long = {word for word in words if len(word) > LONGEST_WORD}
    refused = Counter({str(row.get("word")): 0 for row in filed.refused})
    for row in filed.refused:
        word = str(row.get("word"))
        refused[word] = max(refused[word], int(row.get("count", 0)))
    for word in sorted(words.keys() | table.keys() | refused.keys()):
        if word in too_long and not filed.cut:
            _same(f"refused word {word[:40]}…", words[word], refused.get(word), findings)
        elif word not in too_long:
            _same(f"word {word!r:.60}", words[word], table.get(word), findings)
    checked = {
        "source lines": read,
        "source lines not read yet": unread,
        "words": len(words),
        "words too long for the table": len(too_long),
        "rows in MySQL": len(table),
        "dead letters": filed.count,
    }
    return Verification(checked, findings.found())


_TO_BLANK = bytes(ord(" ") if byte in SPACE else byte for byte in range(256))


def _same(what: str, expected: int, found: int | None, findings: Findings) -> None:
    if found is None:
        findings.add(LOST, f"{what}: no row, the lines make {expected}")
    elif found != expected:
        kind = WRONG if not expected else LOST if found < expected else DUPLICATED
        findings.add(kind, f"{what}: {found}, the lines make {expected}")
