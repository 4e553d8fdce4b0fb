"""What a session needs for Spark's event log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluicegate.deployment.environment import EVENT_LOG, EVENT_LOG_FOLDER
from sluicegate.errors import SettingsInvalid, TargetMissing
from sluicegate.spark.event_log import (
    event_log_settings,
    history_server,
    require_logs,
)


def test_without_an_event_log_nothing_is_set() -> None:
    assert event_log_settings({EVENT_LOG_FOLDER: "/nowhere/at/all"}) == {}


def test_the_folder_of_the_log_is_created(tmp_path: Path) -> None:
    """Spark's context does not start without it."""
    settings = event_log_settings({EVENT_LOG: "True", EVENT_LOG_FOLDER: str(tmp_path / "a" / "b")})
    assert (tmp_path / "a" / "b").is_dir()
    assert settings["spark.eventLog.rolling.enabled"] == "true"


def test_a_users_size_of_a_file_stays(tmp_path: Path) -> None:
    size = "spark.eventLog.rolling.maxFileSize"
    assert size not in event_log_settings(
        {EVENT_LOG: "true", EVENT_LOG_FOLDER: str(tmp_path), size: "1g"}
    )


def test_a_log_without_a_folder_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match=r"spark.eventLog.enabled is set without"):
        event_log_settings({EVENT_LOG: "true"})


def test_a_history_server_without_a_folder_says_what_creates_it(tmp_path: Path) -> None:
    """Spark's own answer is a stack trace."""
    with pytest.raises(
        TargetMissing, match=r"start a job whose sparkConf has spark.eventLog.enabled"
    ):
        require_logs(str(tmp_path / "spark-events"))


def test_a_folder_without_a_log_is_enough_for_a_history_server(tmp_path: Path) -> None:
    require_logs(str(tmp_path))
    require_logs(tmp_path.as_uri())


def test_no_key_of_s3_is_in_the_options_of_the_history_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anyone on the machine can read the command line of a process."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    command, environment = history_server("s3://b/logs", "127.0.0.1", 1)
    options = environment["SPARK_HISTORY_OPTS"]
    assert "-Dspark.history.fs.logDirectory=s3a://b/logs" in options
    assert "fs.s3a.bucket.b.endpoint=http://127.0.0.1:1" in options
    assert "the-" not in f"{options} {command}"
