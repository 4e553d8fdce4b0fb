"""All dead letters of a job are replayed to its source; every line is still counted or rejected once."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from infra.local_services import Services
from sluicegate.cli.app import app
from tests.robustness.traffic.ip_count_harness import LINES, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_an_unchanged_replay_becomes_a_dead_letter_again_and_is_counted_once(
    services: Services, tmp_path: Path
) -> None:
    """Late lines are late again and invalid ones invalid; the replay sends each line once."""
    with scene(services, tmp_path) as played:
        ended = played.run()
        assert ended.code == 0, ended.log
        buried = played.check_exact()["dead letters"]
        assert buried > 0
        topic, servers = played.settings.dead_letters, ["--kafka", played.settings.kafka]
        for again in (buried, 0):
            done = CliRunner().invoke(app, ["dead-letters", "replay", topic, "--yes", *servers])
            assert done.exit_code == 0, done.output
            assert (f"{again:>10,}  sent to {played.settings.source}" in done.output) == bool(again)
        ended = played.but(max_records=100_000).run()
        assert ended.code == 0, ended.log
        assert played.check_exact(LINES + buried)["dead letters"] == 2 * buried
        listed = CliRunner().invoke(app, ["dead-letters", "list", topic, *servers]).output
    assert "late: the window was closed before the hit arrived  (replayed " in listed
