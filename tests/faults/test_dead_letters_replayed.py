"""Dead letters of a whole job are sent back to its source, and every line still ends in one place."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from infra.embedded import Services
from sluicegate.cli.commands import app
from tests.faults.harness import LINES, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_what_is_replayed_unmended_is_a_dead_letter_again_and_nothing_is_counted_twice(
    services: Services, tmp_path: Path
) -> None:
    """Late lines are late again, broken ones broken; the replay itself sends each once."""
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
    assert "late: the window was closed before the hit came  (replayed " in listed
