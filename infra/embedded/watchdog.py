"""Ends one server when the process that started it is gone, however that died.

Not a supervisor: it restarts nothing. Started by infra.embedded.process, one for each server, with
a pipe as its standard input: first line the server's pid, then nothing. The kernel closes the
pipe's other end even if its owner is killed by SIGKILL, on Linux and macOS alike. Linux's
PR_SET_PDEATHSIG is no substitute: it fires when the *thread* that forked ends, and macOS has none.
"""

import os
import signal
import sys
import time

GRACE_S = 10.0


def gone(pid: int) -> bool:
    """Tell whether no process has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def end(pid: int) -> None:
    """Ask a process to stop, and kill it when it has not within the grace time."""
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
    """Wait for the pipe's end; `done` before it means that the server has been reaped."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pid = sys.stdin.readline().strip()
    if pid and sys.stdin.readline().strip() != "done":
        end(int(pid))


if __name__ == "__main__":
    main()
