"""Waits for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], what: str = "the condition", *, seconds: float) -> None:
    """Wait until a condition holds; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds:g} s"
        time.sleep(0.02)
