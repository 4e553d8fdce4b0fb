"""Verification of word_count: counts the words of its source in plain Python and compares the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Record
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import DeadLetters, text_of
from sluicegate_jobs.verification.epoch_log import CoveredRecords
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, WRONG, Findings

if TYPE_CHECKING:
    from sluicegate_jobs.word_count.job import WordCountSettings

SPACE = b" \t\n\x0b\x0c\r"
"""The characters that separate words: Java's \\s."""

MAX_WORD_CHARACTERS = 255
"""The length of the table's key."""


def verify(settings: WordCountSettings) -> Verification:
    """Count the words again and compare them with the table and the dead letters.

    Raises:
        SluicegateError: something cannot be read, nothing was ever decided, or the job ran during the
            check.
    """
    check = Check(settings, settings.source)
    compared = compare(
        settings.source,
        check.source_records(),
        check.decided.covered,
        dict(check.table_rows(settings.table, "word, count")),
        check.topic_values(settings.dead_letters),
    )
    return check.conclude(compared, settings.table)


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
        source: its records, including those that no epoch has read.
        covered: partition -> the first offset that no decided epoch has read.
        table: word -> count.
        letters: the values of the dead letters.
    """
    findings = Findings()
    dead_letters = DeadLetters(letters, findings)
    words: Counter[str] = Counter()
    records = CoveredRecords(source, covered)
    for record in records:
        text = text_of(record.value)
        dead_letters.check(topic, record, None if isinstance(text, bytes) else text)
        if isinstance(text, bytes):
            words.update(word.decode() for word in text.translate(_TO_BLANK).split(b" ") if word)
    dead_letters.check_none_left()
    too_long = {word for word in words if len(word) > MAX_WORD_CHARACTERS}
    refused = Counter({str(row.get("word")): 0 for row in dead_letters.refused})
    for row in dead_letters.refused:
        word = str(row.get("word"))
        refused[word] = max(refused[word], int(row.get("count", 0)))
    for word in sorted(words.keys() | table.keys() | refused.keys()):
        if word in too_long and not dead_letters.truncated:
            _check_count(f"refused word {word[:40]}…", words[word], refused.get(word), findings)
        elif word not in too_long:
            _check_count(f"word {word!r:.60}", words[word], table.get(word), findings)
    checked = {
        "source lines": records.read,
        "source lines not read yet": records.unread,
        "words": len(words),
        "words too long for the table": len(too_long),
        "rows in MySQL": len(table),
        "dead letters": dead_letters.count,
    }
    return Verification(checked, findings.result())


_TO_BLANK = bytes(ord(" ") if byte in SPACE else byte for byte in range(256))


def _check_count(what: str, expected: int, actual: int | None, findings: Findings) -> None:
    if actual is None:
        findings.add(LOST, f"{what}: no row, expected {expected}")
    elif actual != expected:
        kind = WRONG if not expected else LOST if actual < expected else DUPLICATED
        findings.add(kind, f"{what}: {actual}, expected {expected}")
