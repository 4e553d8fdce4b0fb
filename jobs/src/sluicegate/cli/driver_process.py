"""A driver as a process of `sluicegate run`, and what driver and supervisor tell each other by pipes.

A standby is a driver that has started its Spark session and waits, before it reads the checkpoint
or opens a sink, until it is its turn.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sluicegate.deployment.environment import DriverVariable

log = logging.getLogger("sluicegate.run")


class DriverProcess:
    """A driver in a session of its own, which stops when this process ends, even if that is killed.

    Args:
        command: the command line of the driver.
        environment: its environment variables.
        standby: whether it waits for `take_over`.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, standby: bool = False
    ) -> None:
        supervisor, self._supervisor = os.pipe()  # the driver sees its end when this process ends
        self._started, started = os.pipe()
        turn, self._turn = os.pipe()
        pipes = {DriverVariable.SUPERVISOR: supervisor, DriverVariable.STARTED: started}
        if standby:
            pipes[DriverVariable.TURN] = turn
        try:
            self._process = subprocess.Popen(
                command,
                env={**environment, **{str(name): str(end) for name, end in pipes.items()}},
                start_new_session=True,
                pass_fds=tuple(pipes.values()),
            )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for end in (supervisor, started, turn):
                os.close(end)

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def take_over(self) -> None:
        """Tell a standby that it is its turn."""
        with suppress(BrokenPipeError):  # it has ended, as `wait` tells
            os.write(self._turn, b"1")

    def await_started(self) -> bool:
        """Wait until its query has settled; return whether it has, or the driver has ended before."""
        return bool(os.read(self._started, 1))

    def wait(self) -> int:
        """Wait for its end and return the exit code; negative: the number of a signal."""
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal to the driver, unless it has ended."""
        if self.running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill all its processes: the JVM of a killed Python lives on for a moment."""
        with suppress(ProcessLookupError):  # all its processes have ended already
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Kill all its processes and close the pipes."""
        self.kill()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for end in (self._supervisor, self._started, self._turn):
            os.close(end)


def stop_without_supervisor() -> None:
    """Send SIGTERM to this process when its supervisor has ended, even if that was killed.

    A driver that lived on would fence, or be fenced by, the driver of the next supervisor. The
    supervisor alone has the write end of the pipe, so end of file means that it has ended: at once,
    also in a container in which process 1 adopts orphans, and never because it is suspended.
    """
    descriptor = os.environ.pop(DriverVariable.SUPERVISOR, "")
    if descriptor:
        threading.Thread(
            target=_await_end_of_supervisor, args=(int(descriptor),), daemon=True
        ).start()


def _await_end_of_supervisor(descriptor: int) -> None:
    os.read(descriptor, 1)
    log.warning("the supervisor of this driver was killed; the driver stops as at SIGTERM")
    os.kill(os.getpid(), signal.SIGTERM)


def report_started() -> None:
    """Tell the supervisor that this driver's query has settled, so that it starts a standby."""
    descriptor = os.environ.pop(DriverVariable.STARTED, "")
    if descriptor:
        with suppress(BrokenPipeError):  # it was killed, as `stop_without_supervisor` notices
            os.write(int(descriptor), b"1")
        os.close(int(descriptor))


def is_standby() -> bool:
    """Return whether this driver must wait for its turn."""
    return bool(os.environ.get(DriverVariable.TURN))


def await_turn() -> bool:
    """Wait, as a standby, until the driver before this one has ended.

    Returns:
        Whether this driver is to run; False if the supervisor has ended.
    """
    descriptor = int(os.environ.pop(DriverVariable.TURN))
    log.info("the standby is ready")
    return bool(os.read(descriptor, 1))
