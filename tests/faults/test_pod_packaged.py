"""A packaged job in a driver's container: where it is told, with the dead letters it is told, exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.embedded import Services
from sluicegate.cli.options import as_arguments
from sluicegate.protocol.failpoints import VARIABLE
from tests.faults.harness import scene, start

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_ip_count_is_killed_finished_and_goes_on_exactly(
    services: Services, tmp_path: Path
) -> None:
    """Its own checkpoint, interval and topic of dead letters are others."""
    with scene(services, tmp_path) as played:
        elsewhere = played.but(
            checkpoint=str(tmp_path / "unused"), interval="1 hour", dead_letters="unused"
        )
        job = ["run", "ip_count", "--once", *as_arguments(elsewhere.settings)]
        command = ["sluicegate.pod", "--module", "sluicegate.cli", "--", *job]
        told = {
            "SLUICEGATE_CHECKPOINT": played.settings.checkpoint,
            "SLUICEGATE_EPOCHS": json.dumps({"interval": "available-now"}),
            "SLUICEGATE_DEAD_LETTER_TOPIC": played.settings.dead_letters,
        }
        killed = start(command, tmp_path / "1.log", {**told, VARIABLE: "after-decide@2=kill-group"})
        assert killed.wait().code < 0
        finished = start(
            command, tmp_path / "2.log", {**told, "SLUICEGATE_PURPOSE": "finish"}
        ).wait()
        assert finished.code == 0, finished.log
        assert finished.epochs("replayed") == [2]
        assert played.epoch_log().epochs() == [0, 1, 2]
        ended = start(command, tmp_path / "3.log", told).wait()
        assert ended.code == 0, ended.log
        played.check_exact()
    assert not (tmp_path / "unused").exists()
