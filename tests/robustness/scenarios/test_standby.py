"""`sluicegate run --standby`: a second driver takes over from one that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.failpoints import VARIABLE
from tests.robustness.traffic.ip_count_harness import (
    command_of,
    new_log_file,
    new_scenario,
    start,
)

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_a_standby_takes_over_from_each_killed_driver_and_the_result_is_exact(
    services: Services, tmp_path: Path
) -> None:
    """One driver dies before its epoch is decided, its successor in the midst of an apply."""
    scenario = new_scenario(services, tmp_path)
    points = [
        scenario.failpoint("after-stage", "", 2),
        # after the first epoch of the successor, which then has a standby of its own
        scenario.failpoint("apply-written", "mysql", 4),
    ]
    failpoints = ";".join(
        f"{point}=kill-group~{tmp_path / f'killed-{i}'}" for i, point in enumerate(points)
    )
    settings = scenario.with_settings(restart_attempts=len(points), restart_delay_s=0.2).settings
    command = [*command_of("ip_count", settings, supervised=True), "--standby"]
    result = start(command, new_log_file(tmp_path), {VARIABLE: failpoints}).wait()
    assert result.code == 0, result.log
    assert result.log.count("the standby takes over") == len(points)
    assert "the standby is not warm" not in result.log
    # by its start the first successor does not know whether epoch 1 was applied
    assert result.epochs("replayed") == [1, 4]
    scenario.check_exact()
