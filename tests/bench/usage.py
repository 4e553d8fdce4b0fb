"""CPU time and memory of all processes of a contender.

Other load on the machine slows a run down but hardly changes its CPU time, so that distinguishes contenders
where wall-clock time cannot. Brokers and MySQL are not included. Linux only.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from tests.bench.alongside import alongside

Sample = tuple[float, float]
"""Milliseconds since 1970, and seconds of CPU time so far."""

_PROC = Path("/proc")
EVERY_S = 0.2
"""Between two samples of the CPU time."""

_MEMORY_EVERY = 25
"""Samples of the CPU time for one of the memory, for which the kernel walks all pages of a process."""


@dataclass
class Usage:
    """What a contender used while it ran.

    Args:
        cpu: samples of its CPU time, ascending.
        peak_bytes: the most memory of its processes at a time. A page that they share counts once (PSS).
    """

    cpu: list[Sample] = field(default_factory=list)
    peak_bytes: int = 0

    def figures(self, begin_ms: float, end_ms: float, records: int) -> dict[str, float]:
        """Return the CPU time of a record between two times, and the peak of the memory.

        A figure without samples is left out.
        """
        begin, end = self._at(begin_ms), self._at(end_ms)
        figures = {"memory_mib": self.peak_bytes / (1 << 20)} if self.peak_bytes else {}
        if begin is not None and end is not None:
            figures["cpu_us"] = (end - begin) * 1e6 / records
        return figures

    def _at(self, moment_ms: float) -> float | None:
        """Return the CPU seconds at a time, interpolated between the adjacent samples."""
        after = bisect_left(self.cpu, (moment_ms, 0.0))
        if not 0 < after < len(self.cpu):
            return None
        (t0, c0), (t1, c1) = self.cpu[after - 1], self.cpu[after]
        return c0 + (c1 - c0) * (moment_ms - t0) / (t1 - t0)


@contextmanager
def sampling(session: int) -> Iterator[Usage]:
    """Sample the processes of a session while the block runs."""
    usage = Usage()

    def watch(done: Event) -> None:
        turns = 0
        while not done.wait(EVERY_S):
            now_ms = time.time() * 1000
            processes = dict(_processes(session))
            # The sum falls when a process exits and its parent does not count it: the run is over.
            used_s = _seconds(processes.values())
            if processes and (not usage.cpu or used_s >= usage.cpu[-1][1]):
                usage.cpu.append((now_ms, used_s))
            if turns % _MEMORY_EVERY == 0:
                usage.peak_bytes = max(usage.peak_bytes, sum(map(_proportional_bytes, processes)))
            turns += 1

    with alongside(watch):
        yield usage


def cpu_s(session: int) -> float:
    """Return the CPU time that the processes of a session have used so far, in seconds."""
    return _seconds(ticks for _, ticks in _processes(session))


def _seconds(ticks: Iterable[int]) -> float:
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _processes(session: int) -> Iterator[tuple[Path, int]]:
    """Yield the processes of a session with their CPU time, and that of exited children, in ticks."""
    for folder in _PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # the process has exited
        fields = stat.rpartition(")")[2].split()
        if int(fields[3]) == session:
            yield folder, sum(int(value) for value in fields[11:15])


def _proportional_bytes(process: Path) -> int:
    """Return the memory of a process, its share of pages that others use too; 0 if it has exited."""
    try:
        rollup = (process / "smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+) kB$", rollup, re.MULTILINE)
    return int(found[1]) << 10 if found else 0
