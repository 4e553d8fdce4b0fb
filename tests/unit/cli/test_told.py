"""A packaged job's settings as the resource of the job tells them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate.cli.commands import app
from sluicegate.cli.told import as_told
from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.job import JobSettings
from sluicegate_jobs.ip_count import IpCountSettings

Tell = Callable[[str, str], None]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Give what sets a variable for this test."""
    return monkeypatch.setenv


def test_a_job_is_where_it_is_told(tell: Tell) -> None:
    tell("SLUICEGATE_CHECKPOINT", "s3://b/j/1")
    tell("SLUICEGATE_EPOCHS", json.dumps({"interval": "2 seconds"}))
    settings = as_told("ip_count", IpCountSettings(window="9 seconds"))
    assert settings.checkpoint == "s3://b/j/1"
    assert settings.interval == "2 seconds"
    assert settings.window == "9 seconds"


def test_the_topic_of_dead_letters_replaces_topic_and_table(tell: Tell) -> None:
    tell("SLUICEGATE_DEAD_LETTER_TOPIC", "letters")
    settings = as_told("ip_count", IpCountSettings(dead_letter_table="t"))
    assert (settings.dead_letters, settings.dead_letter_table) == ("letters", "")


def test_a_topic_for_a_job_without_dead_letters_is_refused(tell: Tell) -> None:
    tell("SLUICEGATE_DEAD_LETTER_TOPIC", "letters")
    with pytest.raises(SettingsInvalid, match="job x has no dead letters"):
        as_told("x", JobSettings())


def test_run_reads_it_and_refuses_what_cannot_work(tell: Tell) -> None:
    tell("SLUICEGATE_EPOCHS", '{"nonsense": 1}')
    ended = CliRunner().invoke(app, ["run", "ip_count", "--once"])
    assert ended.exit_code == 64
    assert "SLUICEGATE_EPOCHS: there is no setting 'nonsense'" in ended.stderr


def test_what_run_refuses_is_left_for_the_supervisor(tell: Tell, tmp_path: Path) -> None:
    tell("SLUICEGATE_OUTCOME", str(tmp_path / "said"))
    CliRunner().invoke(app, ["run", "ip_count", "--once", "--state-backend=memory"])
    assert json.loads((tmp_path / "said").read_text())["kind"] == "SettingsInvalid"
