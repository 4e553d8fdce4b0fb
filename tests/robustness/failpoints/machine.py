"""The machine of a run's drivers: a wrong clock, a full disk, no memory, a power cut.

Its disk has the checkpoint, and only the run and its drivers see it, in a mount namespace of the run.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.robustness.failpoints import clock, disk, namespace
from tests.robustness.failpoints.actors import Actor
from tests.robustness.traffic.long_lived_job import Driver

PROGRAMS: Final = {"unshare": "util-linux", **disk.PROGRAMS}
"""What it runs, with the Debian package that contains it."""

_NO_LIMIT: Final = resource.RLIM_INFINITY


def missing() -> str:
    """Return why this user cannot have such a machine; empty if nothing is missing."""
    return namespace.missing(PROGRAMS)


def in_own_namespace() -> None:
    """Start this process again in a new mount namespace, unless it is in one already."""
    namespace.enter("--mount")


class Machine:
    """What the drivers of a run share.

    Args:
        folder: of the disk and the clock.
    """

    def __init__(self, folder: Path) -> None:
        self.disk, self._image = folder / "disk", folder / "disk.img"
        disk.make_disk(self._image, self.disk)
        self._clock = clock.Clock(clock.build(folder), folder / "clock")
        self._clock.set(0)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a driver."""
        return self._clock.variables

    def failing(self, actor: Actor, driver: Driver) -> AbstractContextManager[None]:
        """Return a block in which the machine fails; a clock that was set stays wrong after it."""
        match actor:
            case Actor.DISK_FULL:
                return disk.full_disk(self.disk / "filler")
            case Actor.NO_MEMORY:
                return without_memory(driver)
            case Actor.CLOCK_AHEAD:
                self._clock.set_ahead()
            case _:
                self._clock.set_back()
        return contextlib.nullcontext()

    def cut_power(self, driver: Driver) -> None:
        """Kill a driver, and leave on the disk what was flushed to it."""
        driver.kill()
        disk.lose_power(self._image, self.disk)


@contextmanager
def without_memory(driver: Driver) -> Iterator[None]:
    """Give the processes of a driver no more memory while the block runs: they keep what they have."""
    for process in driver.members():
        with suppress(FileNotFoundError, ProcessLookupError):
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
            _limit(process.pid, pages * os.sysconf("SC_PAGE_SIZE"))
    try:
        yield
    finally:
        for process in driver.members():
            with suppress(ProcessLookupError):
                _limit(process.pid, _NO_LIMIT)


def _limit(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_AS, (size, _NO_LIMIT))
