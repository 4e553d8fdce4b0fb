"""A wall clock of some processes that can be set while they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.toolchain.host import need, run

_SOURCE: Final = Path(__file__).with_name("wrong_clock.c")
MINUTE_S: Final = 60

MOST_AHEAD_S: Final = 50 * MINUTE_S
"""Kafka refuses records from more than an hour ahead (message.timestamp.after.max.ms)."""


@dataclass(frozen=True)
class Clock:
    """The clock of the processes that run with `variables`; their monotonic clock is right.

    Args:
        library: what `build` has built.
        file: where it reads by how much the clock is wrong.
    """

    library: Path
    file: Path

    def set(self, offset_s: int) -> None:
        """Make the clock wrong by some seconds; positive is ahead."""
        written = self.file.with_suffix(".new")
        written.write_text(str(offset_s))
        written.replace(self.file)

    def set_ahead(self) -> None:
        """Set it ahead, halfway to what Kafka accepts."""
        self.set((self.offset_s + MOST_AHEAD_S) // 2)

    def set_back(self) -> None:
        """Set it back by an hour."""
        self.set(self.offset_s - 60 * MINUTE_S)

    @property
    def offset_s(self) -> int:
        """By how much it is wrong."""
        return int(self.file.read_text())

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its processes."""
        return {"LD_PRELOAD": str(self.library), "SLUICEGATE_TESTS_CLOCK": str(self.file)}


def build(folder: Path) -> Path:
    """Build the library of a clock.

    Raises:
        HostError: there is no compiler and it cannot be installed, or it failed.
    """
    need({"cc": "gcc"})
    built = folder / "wrong_clock.so"
    run(["cc", "-O2", "-shared", "-fPIC", "-o", built, _SOURCE, "-ldl"], what="cc failed")
    return built
