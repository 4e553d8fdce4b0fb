"""What an epoch read, from Spark's `offsets/N` and the one before. Pure.

The format is Spark's: a version, a line of metadata, then a line for each source. Only lines of sources
are shown; the metadata contains Spark's configuration.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_HEAD = 2
"""Lines before those of the sources."""
_LONGEST = 4_000


@dataclass(frozen=True)
class Range:
    """What an epoch read of a partition; `start` is None if the epoch before read nothing of it."""

    topic: str
    partition: str
    start: int | None
    end: int


@dataclass(frozen=True)
class SourceOffsets:
    """The end of a source in an epoch: by partition, or as Spark wrote it."""

    text: str
    ranges: tuple[Range, ...] = ()


def sources(before: bytes | None, stored: bytes | None) -> list[SourceOffsets]:
    """Return the offsets of each source; empty without an offset log."""
    starts, ends = _lines(before), _lines(stored)
    starts += [""] * (len(ends) - len(starts))
    return [_source(start, end) for start, end in zip(starts, ends, strict=False)]


def _lines(stored: bytes | None) -> list[str]:
    return (stored or b"").decode(errors="replace").splitlines()[_HEAD:]


def _source(start: str, end: str) -> SourceOffsets:
    text = end if len(end) <= _LONGEST else f"{end[:_LONGEST]}…"
    ends, starts = _by_partition(end), _by_partition(start)
    return SourceOffsets(
        text,
        tuple(Range(*key, starts.get(key), offset) for key, offset in sorted(ends.items())),
    )


def _by_partition(line: str) -> dict[tuple[str, str], int]:
    """Return Kafka's `{"topic": {"0": 12}}` as offsets by partition; empty for any other source."""
    try:
        parsed: Any = json.loads(line)
        return {
            (str(topic), str(partition)): int(offset)
            for topic, partitions in parsed.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        return {}
