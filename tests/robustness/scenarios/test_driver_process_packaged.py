"""A packaged job in a driver process: the environment sets checkpoint and dead-letter topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.cli.options import as_arguments
from sluicegate.failpoints import VARIABLE
from tests.robustness.traffic.ip_count_harness import scene, start

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_ip_count_is_killed_applied_and_continues_exactly_once(
    services: Services, tmp_path: Path
) -> None:
    """The job's own checkpoint, interval and dead-letter topic are overridden."""
    with scene(services, tmp_path) as played:
        elsewhere = played.but(
            checkpoint=str(tmp_path / "unused"), interval="1 hour", dead_letters="unused"
        )
        job = ["run", "ip_count", "--once", *as_arguments(elsewhere.settings)]
        command = ["sluicegate.driver", "--module", "sluicegate.cli", "--", *job]
        environment = {
            "SLUICEGATE_CHECKPOINT": played.settings.checkpoint,
            "SLUICEGATE_EPOCHS": json.dumps({"interval": "available-now"}),
            "SLUICEGATE_DEAD_LETTER_TOPIC": played.settings.dead_letters,
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
        assert played.epoch_log().epochs() == [0, 1, 2]
        ended = start(command, tmp_path / "3.log", environment).wait()
        assert ended.code == 0, ended.log
        played.check_exact()
    assert not (tmp_path / "unused").exists()
