"""Gives the tasks of a JVM the processors before its JIT compilers.

A driver's JVM compiles for a minute, and at a start the compilers take more processor time than all other
threads together. On a machine whose processors are busy, tasks then wait for code that will be faster.
With a lower priority the compilers use what the tasks leave idle (docs/decisions/0107).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_COMPILERS: Final = ("C1 CompilerThre", "C2 CompilerThre")
"""The names of HotSpot's compiler threads, in the 15 bytes that Linux has for one."""

_NICE: Final = 10
"""Linux gives a thread of this nice value a tenth of the time of one with 0, if both want to run."""


def lower_priority(jvm: int) -> None:
    """Lower the priority of the compilers of a JVM; threads that they start inherit it.

    It needs no permission, because a priority is never raised. Without Linux's /proc it does nothing.

    Args:
        jvm: its process id.
    """
    for thread in Path(f"/proc/{jvm}/task").glob("*"):
        try:
            if (thread / "comm").read_text().strip() in _COMPILERS:
                _lower(int(thread.name))
        except OSError:  # it has ended, or the container forbids it: then it keeps its priority
            continue


def _lower(thread: int) -> None:
    """Lower the priority of a thread, unless it is as low already, as in a job that `nice` starts."""
    if os.getpriority(os.PRIO_PROCESS, thread) < _NICE:
        os.setpriority(os.PRIO_PROCESS, thread, _NICE)
