"""What tests of the leader election share."""

from __future__ import annotations

import pytest

from sluicegate_operator.kube import leader_election
from tests.unit.operator.clocks import Clock
from tests.unit.operator.kube.leader_election.lease_server import LeaseServer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the time of the elector."""
    clock = Clock()
    monkeypatch.setattr(leader_election, "time", clock)
    return clock


@pytest.fixture
def server() -> LeaseServer:
    """Return a server without a Lease."""
    return LeaseServer()
