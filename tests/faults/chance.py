"""Draws where a driver is killed, by a seed that is printed; SLUICEGATE_TESTS_SEED repeats it."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

from sluicegate.protocol.failpoints import POINTS

SEED_VARIABLE = "SLUICEGATE_TESTS_SEED"

DRIVER_POINTS = [p for p, who in POINTS.items() if who.startswith(("driver:", "applier:"))]
"""Passed by a driver that applies by itself."""

OF_A_SINK = {p for p in DRIVER_POINTS if p.endswith("-apply") or POINTS[p].startswith("applier:")}
"""Those of them that are passed once for each sink that has rows."""


class Chance(random.Random):
    """Random numbers that can be drawn again."""

    def __init__(self) -> None:
        given = os.environ.get(SEED_VARIABLE)
        self.drawn = int(given) if given else random.SystemRandom().randrange(1 << 32)
        super().__init__(self.drawn)

    def killed_at(self, epochs: range, sinks: Sequence[str] = ()) -> str:
        """Draw a point of a driver, as failpoints are written, and print it.

        Args:
            epochs: that the job surely has.
            sinks: that surely have rows in each of them; none: the first that has is meant.
        """
        point, epoch = self.choice(DRIVER_POINTS), self.choice(epochs)
        sink = f":{self.choice(sinks)}" if sinks and point in OF_A_SINK else ""
        where = f"{point}{sink}@{epoch}"
        self.tell(where)
        return where

    def tell(self, where: str) -> None:
        """Print what was drawn, and how to draw it again."""
        print(f"{SEED_VARIABLE}={self.drawn}: killed at {where}")  # noqa: T201
