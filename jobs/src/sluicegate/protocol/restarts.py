"""Restart strategies: whether and when a driver that failed is started again. Pure.

Callers: `sluicegate run` (and the operator, by the same names). Not here: starting anything.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FixedDelay:
    """Restart a fixed number of times, each after the same delay (Flink's fixed-delay).

    Args:
        attempts: restarts in all, default 3; 0 never restarts.
        delay_s: seconds before each, default 10.
    """

    attempts: int = 3
    delay_s: float = 10.0

    def next_delay_s(self, failures: int) -> float | None:
        """Return the seconds to wait after the given number of failures; None: give up."""
        return self.delay_s if failures <= self.attempts else None
