"""Exponential backoff: the pause before the next of several attempts.

A module without imports: the pure protocol, the sinks and the supervisor share it.
"""

from __future__ import annotations

_MOST_DOUBLINGS = 60
"""More would overflow a float after enough failures."""


def backoff_s(attempt: int, first_s: float, max_s: float) -> float:
    """Return the pause in seconds after a failed attempt: doubled each time, without jitter.

    Args:
        attempt: the number of attempts that have failed so far, at least 1.
        first_s: the pause after the first failed attempt, in seconds.
        max_s: the longest pause, in seconds.
    """
    return min(max_s, first_s * 2.0 ** min(max(attempt - 1, 0), _MOST_DOUBLINGS))
