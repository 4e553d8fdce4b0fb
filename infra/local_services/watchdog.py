"""Ends one server when the process that started it has ended, even by SIGKILL. Restarts nothing.

Each server has one. Its standard input is a pipe: the first line is the server's pid, then nothing
follows. The kernel closes the other end when its owner ends, on Linux and macOS alike. PR_SET_PDEATHSIG
of Linux is no substitute: it fires when the *thread* that forked ends, and macOS does not have it.
"""

import os
import signal
import sys
import time

GRACE_S = 10.0


def gone(pid: int) -> bool:
    """Return whether no process has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def end(pid: int) -> None:
    """Send SIGTERM, and SIGKILL after the grace period."""
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 1.0)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if gone(pid):
                return
            time.sleep(0.05)


def main() -> None:
    """Wait for the end of the pipe; a line `done` means that the server was reaped."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pid = sys.stdin.readline().strip()
    if pid and sys.stdin.readline().strip() != "done":
        end(int(pid))


if __name__ == "__main__":
    main()
