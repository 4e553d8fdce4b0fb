"""Draws a random failpoint from a printed seed; SLUICEGATE_TESTS_SEED repeats the draw."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

from sluicegate.failpoints import POINTS

SEED_VARIABLE = "SLUICEGATE_TESTS_SEED"

DRIVER_POINTS = [p for p, user in POINTS.items() if user.startswith(("driver:", "applier:"))]
"""Failpoints of a driver that applies epochs itself."""

SINK_POINTS = {p for p in DRIVER_POINTS if p.endswith("-apply") or POINTS[p].startswith("applier:")}
"""The failpoints that are passed once for each sink with rows."""


class SeededRandom(random.Random):
    """Reproducible random numbers."""

    def __init__(self) -> None:
        seed = os.environ.get(SEED_VARIABLE)
        self.seed_value = int(seed) if seed else random.SystemRandom().randrange(1 << 32)
        super().__init__(self.seed_value)

    def draw_failpoint(self, epochs: range, sinks: Sequence[str] = ()) -> str:
        """Draw a failpoint of a driver, such as 'after-decide@2', and print it.

        Args:
            epochs: epochs that the job certainly runs.
            sinks: sinks that certainly have rows in each epoch; if empty, the first sink with rows.
        """
        point, epoch = self.choice(DRIVER_POINTS), self.choice(epochs)
        sink = f":{self.choice(sinks)}" if sinks and point in SINK_POINTS else ""
        failpoint = f"{point}{sink}@{epoch}"
        self.report(failpoint)
        return failpoint

    def report(self, failpoint: str) -> None:
        """Print the drawn failpoint and the seed that repeats it."""
        print(f"{SEED_VARIABLE}={self.seed_value}: killed at {failpoint}")  # noqa: T201
