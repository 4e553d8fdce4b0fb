"""What a check found wrong: kinds, counts and a few examples of each. Called by the verifiers."""

from __future__ import annotations

from collections import Counter

from sluicegate.cli.job import Finding

LOST, DUPLICATED = "lost", "duplicated"
WRONG, UNDECIDED = "wrong", "undecided-but-visible"

_EXAMPLES = 5


class Findings:
    """Collects what is wrong: a count and a few examples of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, example: str, count: int = 1) -> None:
        """Note something wrong."""
        self._counts[kind] += count
        examples = self._examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(example)

    def found(self) -> tuple[Finding, ...]:
        """Return a finding for each kind."""
        order = (LOST, DUPLICATED, WRONG, UNDECIDED)
        kinds = (kind for kind in order if self._counts[kind])
        return tuple(Finding(k, self._counts[k], tuple(self._examples[k])) for k in kinds)
