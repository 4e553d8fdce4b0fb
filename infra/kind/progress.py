"""Says which of how many steps runs, and how long the whole took.

Called by `cluster` and `node`.
"""

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
        """Say which step begins."""
        self._done += 1
        print(f"{self._done} of {self._total}: {what} ...", flush=True)

    def grow(self, more: int) -> None:
        """Expect more steps: what there is to build is known only when somebody looks."""
        self._total += more

    def elapsed_s(self) -> float:
        """Return how long it took so far."""
        return time.monotonic() - self._began
