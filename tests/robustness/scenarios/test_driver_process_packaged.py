"""A packaged job in a driver process: the environment sets checkpoint and dead-letter topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.cli.options import as_arguments
from sluicegate.failpoints import VARIABLE
from tests.robustness.traffic.ip_count_harness import new_scenario, start

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_ip_count_is_killed_applied_and_continues_exactly_once(
    services: Services, tmp_path: Path
) -> None:
    """The job's own checkpoint, interval and dead-letter topic are overridden."""
    scenario = new_scenario(services, tmp_path)
    overridden = scenario.with_settings(
        checkpoint=str(tmp_path / "unused"), interval="1 hour", dead_letters="unused"
    )
    job = ["run", "ip_count", "--once", *as_arguments(overridden.settings)]
    command = ["sluicegate.driver", "--module", "sluicegate.cli", "--", *job]
    environment = {
        "SLUICEGATE_CHECKPOINT": scenario.settings.checkpoint,
        "SLUICEGATE_EPOCHS": json.dumps({"interval": "available-now"}),
        "SLUICEGATE_DEAD_LETTER_TOPIC": scenario.settings.dead_letters,
    }
    killed = start(
        command, tmp_path / "1.log", {**environment, VARIABLE: "after-decide@2=kill-group"}
    )
    assert killed.wait().code < 0
    applied = start(
        command, tmp_path / "2.log", {**environment, "SLUICEGATE_MODE": "apply-only"}
    ).wait()
    assert applied.code == 0, applied.log
    assert applied.epochs("replayed") == [2]
    assert scenario.epoch_log().epochs() == [0, 1, 2]
    result = start(command, tmp_path / "3.log", environment).wait()
    assert result.code == 0, result.log
    scenario.check_exact()
    assert not (tmp_path / "unused").exists()
