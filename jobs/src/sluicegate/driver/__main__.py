"""`python -m sluicegate.driver --module MODULE -- ARGS…`, or `--file FILE -- ARGS…`.

The signal handler is installed before anything else is imported, because a signal may arrive at any
time: process 1 of a container never receives a signal for which it has no handler.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from sluicegate.spark import shutdown


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    shutdown.request()


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGTERM, _on_sigterm)
        from sluicegate.driver.main import main

        code = main(sys.argv[1:])
    except shutdown.Ended:  # before or after the job's main
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        from sluicegate.driver.main import stopped

        code = stopped()
    sys.exit(code)
