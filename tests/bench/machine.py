"""Reports how busy the machine is before a round, and which processes use it.

No figure includes this. Reads /proc on Linux; elsewhere only the load average is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_BUSY_SHARE = 0.05
_SAMPLE_S = 1.0


@dataclass(frozen=True)
class Process:
    """A process that used a core while the benchmark was idle."""

    pid: int
    name: str
    cores: float


@dataclass(frozen=True)
class Machine:
    """Load and memory before a round.

    Args:
        load: load average of the last 1, 5 and 15 minutes; includes our own earlier rounds.
        cores: number of cores.
        memory_free_mb: available memory; 0 if unknown.
        memory_mb: total memory; 0 if unknown.
        busy: other processes that use CPU while the benchmark is idle.
    """

    load: tuple[float, float, float]
    cores: int
    memory_free_mb: int
    memory_mb: int
    busy: tuple[Process, ...]

    def __str__(self) -> str:
        """Describe the machine in one line."""
        load = " ".join(f"{value:.2f}" for value in self.load)
        memory = f"{self.memory_free_mb:,} of {self.memory_mb:,} MB free" if self.memory_mb else "?"
        return f"load {load}, {self.cores} cores, memory {memory}"

    def warning(self) -> str:
        """Return a warning about other load; empty if none is known."""
        if self.busy:
            names = ", ".join(f"{p.name} ({p.pid}, {p.cores:.1f} cores)" for p in self.busy[:5])
            return f"WARNING: other processes are running, do not trust the figures: {names}"
        if not _PROC.is_dir() and self.load[0] > self.cores / 2:
            return "WARNING: the load is high; unless an earlier round caused it, do not trust the figures"
        return ""


def sample() -> Machine:
    """Watch the machine for a second, during which the caller measures nothing."""
    before, start = _running(), time.monotonic()
    time.sleep(_SAMPLE_S)
    spent_s, after = time.monotonic() - start, _running()
    busy = [
        Process(pid, process.name, (process.cpu_s - before[pid].cpu_s) / spent_s)
        for pid, process in after.items()
        if pid in before and not _is_ours(pid, after)
    ]
    ranked = sorted((p for p in busy if p.cores > _BUSY_SHARE), key=lambda p: -p.cores)
    free, total = _memory_mb()
    return Machine(os.getloadavg(), os.cpu_count() or 1, free, total, tuple(ranked))


class _Running(NamedTuple):
    name: str
    parent: int
    cpu_s: float


def _is_ours(pid: int, processes: Mapping[int, _Running]) -> bool:
    """Return whether this process has started another one, such as the broker; itself too."""
    while pid != os.getpid():
        if pid not in processes:
            return False
        pid = processes[pid].parent
    return True


def _running() -> dict[int, _Running]:
    """Return the processes of the machine by pid, with their seconds of CPU time so far."""
    processes = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # the process has exited
        head, _, rest = text.rpartition(")")  # a name may contain any character
        fields = rest.split()
        ticks = int(fields[11]) + int(fields[12])
        name, parent = head.partition("(")[2], int(fields[1])
        processes[int(stat.parent.name)] = _Running(name, parent, ticks / os.sysconf("SC_CLK_TCK"))
    return processes


def _memory_mb() -> tuple[int, int]:
    try:
        lines = (_PROC / "meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0, 0
    sizes = {line.partition(":")[0]: int(line.split()[1]) // 1024 for line in lines}
    return sizes.get("MemAvailable", 0), sizes.get("MemTotal", 0)
