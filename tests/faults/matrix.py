"""Which cases of a matrix of faults run: a few by default, each with SLUICEGATE_EXHAUSTIVE=1.

A case is a driver or two, half a minute of a core. Every point is passed by a default test; left out
are pairs: a point with the JVM alone killed, with a zombie, with epochs that overlap, on S3. Called by
the tests of this folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

EXHAUSTIVE_VARIABLE = "SLUICEGATE_EXHAUSTIVE"


def chosen(every: Sequence[Case], few: Sequence[Case]) -> Sequence[Case]:
    """Return every case where the environment asks for it, else a few of them."""
    assert set(few) <= set(every)
    return every if exhaustive() else few


def exhaustive() -> bool:
    """Return whether the environment asks for the long way."""
    return bool(os.environ.get(EXHAUSTIVE_VARIABLE))
