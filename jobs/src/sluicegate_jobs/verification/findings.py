"""The findings of a check: kinds, counts and a few examples. Imported by every other module of checks."""

from __future__ import annotations

from collections import Counter

from sluicegate.packaged_job import Finding

LOST, DUPLICATED = "lost", "duplicated"
WRONG, UNDECIDED = "wrong", "undecided-but-visible"

_MAX_EXAMPLES = 5


class Findings:
    """Collects findings: a count and a few examples of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, example: str, count: int = 1) -> None:
        """Add a finding."""
        self._counts[kind] += count
        examples = self._examples.setdefault(kind, [])
        if len(examples) < _MAX_EXAMPLES:
            examples.append(example)

    def result(self) -> tuple[Finding, ...]:
        """Return one finding for each kind."""
        kinds = (kind for kind in (LOST, DUPLICATED, WRONG, UNDECIDED) if self._counts[kind])
        return tuple(Finding(k, self._counts[k], tuple(self._examples[k])) for k in kinds)
