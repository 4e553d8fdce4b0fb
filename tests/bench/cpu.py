"""CPU time of all processes of a contender during its measured epochs.

Other load on the machine slows a run down but hardly changes its CPU time, so this figure distinguishes
contenders where wall-clock time cannot. It excludes the brokers' CPU time. Linux only.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from tests.bench.alongside import alongside

Sample = tuple[float, float]
"""Milliseconds since 1970, and seconds of CPU time so far."""

_PROC = Path("/proc")
EVERY_S = 0.2
"""Between two samples."""


def spent_s(samples: Sequence[Sample], begin_ms: float, end_ms: float) -> float | None:
    """Return the CPU seconds between two times; None if the samples do not cover them."""
    begin, end = _at(samples, begin_ms), _at(samples, end_ms)
    return None if begin is None or end is None else end - begin


def _at(samples: Sequence[Sample], moment_ms: float) -> float | None:
    """Return the CPU seconds at a time, interpolated between the adjacent samples."""
    after = bisect_left(samples, (moment_ms, 0.0))
    if not 0 < after < len(samples):
        return None
    (t0, c0), (t1, c1) = samples[after - 1], samples[after]
    return c0 + (c1 - c0) * (moment_ms - t0) / (t1 - t0)


@contextmanager
def sampling(session: int) -> Iterator[list[Sample]]:
    """Sample the processes of a session while the block runs."""
    samples: list[Sample] = []

    def watch(done: Event) -> None:
        while not done.wait(EVERY_S):
            now_ms = time.time() * 1000
            used_s = _session_s(session)
            # The sum falls when a process exits and its parent does not count it: the run is over.
            if used_s is not None and (not samples or used_s >= samples[-1][1]):
                samples.append((now_ms, used_s))

    with alongside(watch):
        yield samples


def _session_s(session: int) -> float | None:
    """Return the CPU seconds of a session's processes and of their exited children."""
    ticks, any_process = 0, False
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # the process has exited
        if int(fields[3]) == session:
            ticks += sum(int(field) for field in fields[11:15])
            any_process = True
    return ticks / os.sysconf("SC_CLK_TCK") if any_process else None
