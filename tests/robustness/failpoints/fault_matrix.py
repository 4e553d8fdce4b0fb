"""Selects the cases of a fault matrix: a few by default, all with SLUICEGATE_EXHAUSTIVE=1.

A case runs one or two drivers and costs half a minute of a core. Default tests pass every point. They omit
combinations: a point with only the JVM killed, with a zombie, with overlapping epochs, on S3.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

EXHAUSTIVE_VARIABLE = "SLUICEGATE_EXHAUSTIVE"


def select_cases(all_cases: Sequence[Case], default_cases: Sequence[Case]) -> Sequence[Case]:
    """Return all cases if the environment requests them, otherwise a few."""
    assert set(default_cases) <= set(all_cases)
    return all_cases if exhaustive() else default_cases


def exhaustive() -> bool:
    """Return whether the environment requests all cases."""
    return bool(os.environ.get(EXHAUSTIVE_VARIABLE))
