"""`python -m sluicegate.pod --module MODULE -- ARGS…`, or `--file FILE -- ARGS…`.

A signal may come at any time, so its handler is there before anything else is imported: process 1 of
a container never gets a signal that it has no handler for.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from sluicegate.spark import ending


def _asked(_number: int, _frame: FrameType | None) -> None:
    ending.ask()


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGTERM, _asked)
        from sluicegate.pod.driver import main

        code = main(sys.argv[1:])
    except ending.Ended:  # before the job's main, or behind it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        from sluicegate.pod.driver import ended

        code = ended()
    sys.exit(code)
