"""The environment of a driver overrides the settings of a packaged job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate.cli.app import app
from sluicegate.cli.options import apply_environment
from sluicegate.errors import SettingsInvalid
from sluicegate.packaged_job import JobSettings
from sluicegate_jobs.ip_count.job import IpCountSettings

SetVariable = Callable[[str, str], None]


@pytest.fixture
def setenv(monkeypatch: pytest.MonkeyPatch) -> SetVariable:
    """Set a variable for this test."""
    return monkeypatch.setenv


def test_checkpoint_and_epochs_are_overridden(setenv: SetVariable) -> None:
    setenv("SLUICEGATE_CHECKPOINT", "s3://b/j/1")
    setenv("SLUICEGATE_EPOCHS", json.dumps({"interval": "2 seconds"}))
    settings = apply_environment("ip_count", IpCountSettings(window="9 seconds"))
    assert settings.checkpoint == "s3://b/j/1"
    assert settings.interval == "2 seconds"
    assert settings.window == "9 seconds"


def test_the_topic_of_dead_letters_replaces_topic_and_table(setenv: SetVariable) -> None:
    setenv("SLUICEGATE_DEAD_LETTER_TOPIC", "letters")
    settings = apply_environment("ip_count", IpCountSettings(dead_letter_table="t"))
    assert (settings.dead_letters, settings.dead_letter_table) == ("letters", "")


def test_a_topic_for_a_job_without_dead_letters_is_rejected(setenv: SetVariable) -> None:
    setenv("SLUICEGATE_DEAD_LETTER_TOPIC", "letters")
    with pytest.raises(SettingsInvalid, match="job x has no dead letters"):
        apply_environment("x", JobSettings())


def test_run_rejects_an_invalid_environment(setenv: SetVariable) -> None:
    setenv("SLUICEGATE_EPOCHS", '{"nonsense": 1}')
    ended = CliRunner().invoke(app, ["run", "ip_count", "--once"])
    assert ended.exit_code == 64
    assert "SLUICEGATE_EPOCHS: unknown setting 'nonsense'" in ended.stderr


def test_an_error_of_run_is_written_for_the_supervisor(setenv: SetVariable, tmp_path: Path) -> None:
    setenv("SLUICEGATE_TERMINATION_FILE", str(tmp_path / "reason"))
    CliRunner().invoke(app, ["run", "ip_count", "--once", "--state-backend=memory"])
    assert json.loads((tmp_path / "reason").read_text())["kind"] == "SettingsInvalid"
