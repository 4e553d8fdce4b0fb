"""Each effect that needs no answer reaches its port."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import create_autospec

import pytest

from sluicegate import failpoints
from sluicegate.protocol import effects
from sluicegate.protocol.ports import ApplyPorts, Clock, EpochPorts, Plan, Sinks
from tests.unit.protocol.script import record


@pytest.fixture
def ports() -> Any:  # noqa: ANN401 - a mock of each port
    return EpochPorts(
        log=None,  # type: ignore[arg-type]
        offsets=None,  # type: ignore[arg-type]
        clock=create_autospec(Clock, instance=True),
        sinks=create_autospec(Sinks, instance=True),
        plan=None,  # type: ignore[arg-type]
    )


def test_the_clock_is_read(ports: EpochPorts) -> None:
    ports.clock.now_ms.return_value = 42  # type: ignore[attr-defined]
    assert effects.Now().perform(ports) == 42


def test_a_pause_is_made(ports: EpochPorts) -> None:
    effects.Pause(0.2).perform(ports)
    ports.clock.pause.assert_called_once_with(0.2)  # type: ignore[attr-defined]


def test_the_last_applied_epoch_is_that_of_the_sinks(ports: EpochPorts) -> None:
    ports.sinks.await_applies.return_value = 7  # type: ignore[attr-defined]
    assert effects.AwaitApplies().perform(ports) == 7


def test_an_epoch_has_the_ports_of_its_applies_and_a_plan(ports: EpochPorts) -> None:
    plan = create_autospec(Plan, instance=True)
    applies = ApplyPorts(ports.log, ports.offsets, ports.clock, ports.sinks)
    assert applies.with_plan(plan) == replace(ports, plan=plan)


def test_markers_are_refreshed(ports: EpochPorts) -> None:
    effects.RefreshMarkers(record()).perform(ports)
    ports.sinks.refresh_markers.assert_called_once_with(record())  # type: ignore[attr-defined]


def test_a_failpoint_is_reached_with_its_epoch_and_sink(
    ports: EpochPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[tuple[Any, ...]] = []
    monkeypatch.setattr(failpoints, "reach", lambda point, **where: reached.append((point, where)))
    effects.HitFailpoint("after-apply", 3, "kafka").perform(ports)
    assert reached == [("after-apply", {"epoch": 3, "sink": "kafka"})]
