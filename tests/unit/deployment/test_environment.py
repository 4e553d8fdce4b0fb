"""The environment of a driver's pod is parsed, validated and wins over the code."""

from __future__ import annotations

import json
import logging

import pytest

from sluicegate.deployment.environment import DriverEnvironment
from sluicegate.errors import SettingsInvalid
from sluicegate.packaged_job import JobSettings
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings


def test_an_empty_environment_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    given = EpochSettings(interval="3 seconds")
    with caplog.at_level(logging.INFO):
        assert DriverEnvironment.read({}).override("here", given) == ("here", given)
    assert not caplog.records


def test_checkpoint_and_epochs_win_and_are_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = DriverEnvironment.read(
        {
            "SLUICEGATE_CHECKPOINT": "s3://b/j/1",
            "SLUICEGATE_EPOCHS": json.dumps({"interval": AVAILABLE_NOW, "timeout_s": 5}),
        }
    )
    with caplog.at_level(logging.INFO):
        address, settings = environment.override("here", JobSettings(min_pause_ms=7))
    assert address == "s3://b/j/1"
    assert settings == JobSettings(min_pause_ms=7, interval=AVAILABLE_NOW, timeout_s=5.0)
    (line,) = caplog.messages
    assert line.endswith(f"checkpoint=s3://b/j/1, interval={AVAILABLE_NOW}, timeout_s=5.0")


def test_an_override_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The CLI applies it to a packaged job's settings, and `epochs` applies it again."""
    environment = DriverEnvironment.read(
        {"SLUICEGATE_CHECKPOINT": "there", "SLUICEGATE_EPOCHS": '{"overlap": true}'}
    )
    with caplog.at_level(logging.INFO):
        environment.override(*environment.override("here", EpochSettings()))
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SLUICEGATE_EPOCHS", "{", "not valid JSON"),
        ("SLUICEGATE_EPOCHS", "[]", "contains a list"),
        ("SLUICEGATE_EPOCHS", '{"intervall": "1 second"}', "did you mean 'interval'"),
        ("SLUICEGATE_EPOCHS", '{"timeout_s": "soon"}', "timeout-s is 'soon'; it must be a number"),
        ("SLUICEGATE_EPOCHS", '{"state_backend": "memory"}', "state would be lost"),
        ("SLUICEGATE_SPARK_CONF", '{"spark.a": null}', "spark.a is None"),
        ("SLUICEGATE_MODE", "rest", "'rest'"),
    ],
)
def test_an_invalid_variable_is_rejected(variable: str, value: str, message: str) -> None:
    with pytest.raises(SettingsInvalid, match=message):
        DriverEnvironment.read({variable: value})


def test_a_driver_without_a_supervisor_knows_of_no_restarts() -> None:
    """Not 0: in a pod the operator counts them."""
    assert DriverEnvironment.read({}).restarts is None
    assert DriverEnvironment.read({"SLUICEGATE_RESTARTS": "0"}).restarts == 0


def test_spark_settings_are_formatted_as_spark_writes_them() -> None:
    conf = DriverEnvironment.read(
        {"SLUICEGATE_SPARK_CONF": '{"a": true, "b": 3, "c": "2g"}'}
    ).spark_conf
    assert conf == {"a": "true", "b": "3", "c": "2g"}
