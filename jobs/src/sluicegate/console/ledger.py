"""What became of the rows of some epochs: those of each sink, those refused, and those too late. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sluicegate.console.model import Epoch
from sluicegate.protocol.record import ROWS_IN

_REFUSED = "refused"
"""A key of `EpochRecord.counts`: rows that became dead letters and are in no other sink."""

_LATE = "late"
"""The kind of the dead letters of late rows."""


@dataclass(frozen=True)
class LedgerLine:
    """What a sink got of the rows that came in."""

    sink: str
    target: str
    rows: int
    difference: int | None
    """Rows in, less those of the sink, refused and late; None if the rows in were not counted."""


@dataclass(frozen=True)
class Ledger:
    """The rows of several epochs; `rows_in` is None unless each of them was counted.

    `late`: rows that became dead letters because they were late, without those in `refused`.
    """

    first: int
    last: int
    rows_in: int | None
    refused: int
    late: int
    lines: tuple[LedgerLine, ...]


def ledger(epochs: Sequence[Epoch]) -> Ledger | None:
    """Return what became of the rows of some epochs; None without epochs."""
    if not epochs:
        return None
    counted = all(ROWS_IN in epoch.counts for epoch in epochs)
    rows_in = sum(epoch.counts[ROWS_IN] for epoch in epochs) if counted else None
    refused = sum(epoch.counts.get(_REFUSED, 0) for epoch in epochs)
    late = sum(_late(epoch) for epoch in epochs)
    rows = sum((Counter(dict(epoch.rows)) for epoch in epochs), Counter[str]())
    lines = tuple(
        LedgerLine(
            sink,
            binding.target,
            rows[sink],
            None if rows_in is None else rows_in - refused - late - rows[sink],
        )
        for sink, binding in epochs[-1].sinks.items()
    )
    return Ledger(epochs[0].number, epochs[-1].number, rows_in, refused, late, lines)


def dead_letters(epochs: Sequence[Epoch]) -> list[tuple[str, int]]:
    """Return the kinds of dead letters in some epochs with their numbers, most first."""
    return sum((Counter(epoch.dead_letters) for epoch in epochs), Counter[str]()).most_common()


def _late(epoch: Epoch) -> int:
    """Return the number of late rows that are not in `refused`.

    A job writes late rows to an output of dead letters, or refuses them itself. All dead letters less
    those of refused rows are from such an output, so at most as many of the late rows are.
    """
    letters = epoch.dead_letters
    of_an_output = sum(letters.values()) - epoch.counts.get(_REFUSED, 0)
    return max(0, min(letters.get(_LATE, 0), of_an_output))
