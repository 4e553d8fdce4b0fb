"""Prints the number of the running step and measures the total time."""

import time
from typing import Final


class Steps:
    """The steps of one command, printed as they begin."""

    def __init__(self, total: int) -> None:
        """Count from one to `total`."""
        self._total = total
        self._done = 0
        self._began: Final = time.monotonic()

    def begin(self, what: str) -> None:
        """Print that a step begins."""
        self._done += 1
        print(f"{self._done} of {self._total}: {what} ...", flush=True)

    def grow(self, more: int) -> None:
        """Add steps that became known only now."""
        self._total += more

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._began
