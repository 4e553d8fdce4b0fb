"""Verification of word_count: counts the words of its source in plain Python and compares the table."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sluicegate.packaged_job import Verification
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import DeadLetters, text_of
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, WRONG, Findings
from sluicegate_jobs.verification.limits import NO_LIMITS, SinkLimits
from sluicegate_jobs.word_count.job import WordCountSettings

MAX_WORD_CHARACTERS = 255
"""The length of the table's key."""


def verify(settings: WordCountSettings) -> Verification:
    """Count the words again and compare them with the table and the dead letters."""
    check = Check(settings, settings.source)
    compared = compare(
        check.source(),
        dict(check.table_rows(settings.table, "word, count")),
        check.topic_values(settings.dead_letters),
        check.limits(table=settings.table),
    )
    return check.conclude(compared, settings.table)


def compare(
    source: SourceRecords,
    table: Mapping[str, int],
    letters: Iterable[bytes | None],
    limits: SinkLimits = NO_LIMITS,
) -> Verification:
    """Compare the table (word -> count) and the dead letters with the words of the source. Pure."""
    findings = Findings()
    dead_letters = DeadLetters(letters, source.topic, findings, limits)
    words: Counter[str] = Counter()
    for record in source:
        text = text_of(record.value)
        dead_letters.check(record, None if isinstance(text, bytes) else text)
        if isinstance(text, bytes):
            # bytes.split() and Java's \s have the same separators: the whitespace of ASCII
            words.update(word.decode() for word in text.split())
    dead_letters.check_none_left()
    too_long = {word for word in words if len(word) > MAX_WORD_CHARACTERS}
    refused: dict[str, int] = {}
    for row in dead_letters.refused:
        word = str(row.get("word"))
        refused[word] = max(refused.get(word, 0), int(row.get("count", 0)))
    for letter in dead_letters.truncated:
        word, count = _identified(letter, {word: words[word] for word in too_long})
        if not count:
            findings.add(WRONG, f"a dead letter is about no count: {letter['reason']!r:.80}")
        refused[word] = max(refused.get(word, 0), count)
    for word in sorted(words.keys() | table.keys() | refused.keys()):
        if word in too_long:
            _check_count(f"refused word {word[:40]}…", words[word], refused.get(word), findings)
        elif word:
            _check_count(f"word {word!r:.60}", words[word], table.get(word), findings)
    checked = source.counts("lines") | {
        "words": len(words),
        "words too long for the table": len(too_long),
        "rows in MySQL": len(table),
    }
    checked |= dead_letters.counts()
    return Verification(checked, findings.result())


def _identified(letter: Mapping[str, Any], counts: Mapping[str, int]) -> tuple[str, int]:
    """Return the word and count of a dead letter whose payload was cut, by its hash; ('', 0) if none fits."""
    for word, count in counts.items():
        row = json.dumps([{"word": word, "count": 0}], ensure_ascii=False).removesuffix("0}]")
        known = hashlib.sha256(row.encode())
        for number in range(count, 0, -1):
            digest = known.copy()
            digest.update(f"{number}}}]".encode())
            if digest.hexdigest() == letter.get("payload_sha256"):
                return word, number
    return "", 0


def _check_count(what: str, expected: int, actual: int | None, findings: Findings) -> None:
    if actual is None:
        findings.add(LOST, f"{what}: no row, expected {expected}")
    elif actual != expected:
        kind = WRONG if not expected else LOST if actual < expected else DUPLICATED
        findings.add(kind, f"{what}: {actual}, expected {expected}")
