"""What tests of the work queue share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sluicegate_operator.kube import work_queue
from tests.unit.operator.clocks import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of the queue, and its jitter by the longest delays."""
    clock = Clock()
    monkeypatch.setattr(work_queue, "time", clock)
    monkeypatch.setattr(work_queue, "random", SimpleNamespace(random=lambda: 1.0))
    return clock
