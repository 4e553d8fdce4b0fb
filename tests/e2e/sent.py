"""What tests have sent to a platform's jobs, and what `sluicegate verify` must therefore count. Pure.

`verify` accepts any number of dead letters that it can justify, so the tests pin them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

from tests.robustness.traffic.late_lines import most_late
from tests.robustness.validate.checker.jobs import parse_hit, parse_indicator

_COUNT = re.compile(r"(?m)^ *([\d,]+)  (.+)$")
"""A line of `sluicegate verify`."""

_PARSERS: Mapping[str, Callable[[bytes], object]] = {
    "ip_count": parse_hit,
    "two_sinks": parse_indicator,
}
"""Of a job's input; None for an invalid record."""


def counts(output: str) -> dict[str, int]:
    """Return what `sluicegate verify` has counted."""
    return {what: int(number.replace(",", "")) for number, what in _COUNT.findall(output)}


class SentRecords:
    """The records that tests have sent, by job."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Sequence[bytes]]] = {job: [] for job in _PARSERS}

    def add(self, job: str, records: Sequence[bytes]) -> None:
        """Add records that were sent together, and that the job may read in any order."""
        self._calls[job].append(records)

    def contradiction(self, job: str, output: str) -> str | None:
        """Return what `sluicegate verify` has miscounted of a job that has read everything, None if nothing."""
        calls = self._calls[job]
        records = list(itertools.chain.from_iterable(calls))
        invalid = sum(_PARSERS[job](record) is None for record in records)
        late = most_late(calls) if job == "ip_count" else 0
        found = counts(output)
        source = {found.get("source lines"), found.get("source records")} - {None}
        if source != {len(records)}:
            return f"{job}: {len(records)} records were sent"
        if found.get("dead letters") not in range(invalid, invalid + late + 1):
            return f"{job}: {invalid} invalid records were sent, and at most {late} late ones"
        return None
