"""All dead letters of a job are replayed to its source; every line is still counted or rejected once."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from infra.local_services import Services
from sluicegate.cli.app import app
from tests.robustness.traffic.ip_count_harness import LATE, LINES, UNPARSED, new_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_an_unchanged_replay_becomes_a_dead_letter_again_and_is_counted_once(
    services: Services, tmp_path: Path
) -> None:
    """Late lines are late again and invalid ones invalid; the replay sends each line once."""
    scenario = new_scenario(services, tmp_path)
    result = scenario.run()
    assert result.code == 0, result.log
    dead_letters = scenario.check_exact()["dead letters"]
    topic, options = scenario.settings.dead_letters, ["--kafka", scenario.settings.kafka]
    for expected in (dead_letters, 0):
        replay = CliRunner().invoke(app, ["dead-letters", "replay", topic, "--yes", *options])
        assert replay.exit_code == 0, replay.output
        assert (f"{expected:>10,}  sent to {scenario.settings.source}" in replay.output) == bool(
            expected
        )
    scenario.finish()
    scenario.check_exact(LINES + dead_letters, unparsed=2 * UNPARSED, late=2 * LATE)
    listing = CliRunner().invoke(app, ["dead-letters", "list", topic, *options]).output
    assert "late: the window was closed before the hit arrived  (replayed " in listing
