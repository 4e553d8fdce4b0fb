"""How many lines of an access log ip_count may drop as late, by the lines alone. Pure.

Spark drops a row of epoch N if its window had ended by the watermark with which epoch N-1 was planned:
the newest event of the epochs up to N-2, less the lateness. `verify` reads that watermark from the
checkpoint. This module computes it from the lines, so that a test can pin what `verify` accepts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from tests.robustness.validate.checker.jobs import parse_hit

_WINDOW_MS = _LATENESS_MS = 5000
"""The defaults of ip_count."""


def count_late(lines: Sequence[bytes], epoch_lines: Sequence[int]) -> int:
    """Return how many lines are late.

    Args:
        lines: in the order in which they were sent.
        epoch_lines: numbers of lines of the first epochs; one more epoch reads the rest.
    """
    begins = [0, *itertools.accumulate(epoch_lines), len(lines)]
    known = [0, *begins]  # what the first epochs of two and more before have read
    epochs = zip(known, itertools.pairwise(begins), strict=False)
    return _count(lines, [read for read, (begin, end) in epochs for _ in range(begin, end)])


def most_late(calls: Iterable[Sequence[bytes]]) -> int:
    """Return how many lines are late at most, however they are split in epochs.

    Args:
        calls: lines that were sent together, and that the job may read in any order.
    """
    sent = list(calls)
    ends = itertools.accumulate(len(lines) for lines in sent)
    known = [end for end, lines in zip(ends, sent, strict=True) for _ in lines]
    return _count([line for lines in sent for line in lines], known)


def possibly_late(lines: Sequence[bytes], *, epoch_lines: int | None = None) -> range:
    """Return the possible numbers of late lines if the job reads all partitions equally far.

    The most are late if an epoch has one line. The fewest are late if two full epochs have been read
    since the watermark.

    Args:
        lines: in the order in which they were sent.
        epoch_lines: the most lines in an epoch; None if there is no limit.
    """
    unknown = len(lines) if epoch_lines is None else 2 * epoch_lines - 1
    fewest = _count(lines, [max(0, number - unknown) for number in range(len(lines))])
    return range(fewest, most_late([line] for line in lines) + 1)


def _count(lines: Sequence[bytes], known: Sequence[int]) -> int:
    """Count the late lines; `known` has for each line how many lines its watermark is the newest of."""
    hits = [parse_hit(line) for line in lines]
    newest_ms = list(itertools.accumulate((hit[0] if hit else 0 for hit in hits), max, initial=0))
    return sum(
        hit is not None
        and hit[0] - hit[0] % _WINDOW_MS + _WINDOW_MS <= newest_ms[read] - _LATENESS_MS
        for hit, read in zip(hits, known, strict=True)
    )
