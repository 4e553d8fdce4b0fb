"""What the environment of a driver's pod tells, and that it wins over the code."""

from __future__ import annotations

import json
import logging

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.settings.job import JobSettings
from sluicegate.settings.told import Told


def test_nothing_told_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    given = EpochSettings(interval="3 seconds")
    with caplog.at_level(logging.INFO):
        assert Told.read({}).over("here", given) == ("here", given)
    assert not caplog.records


def test_the_checkpoint_and_the_epochs_win_in_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told.read(
        {
            "SLUICEGATE_CHECKPOINT": "s3://b/j/1",
            "SLUICEGATE_EPOCHS": json.dumps({"interval": AVAILABLE_NOW, "timeout_s": 5}),
        }
    )
    with caplog.at_level(logging.INFO):
        place, settings = told.over("here", JobSettings(min_pause_ms=7))
    assert place == "s3://b/j/1"
    assert settings == JobSettings(min_pause_ms=7, interval=AVAILABLE_NOW, timeout_s=5.0)
    (line,) = caplog.messages
    assert line.endswith(f"checkpoint=s3://b/j/1, interval={AVAILABLE_NOW}, timeout_s=5.0")


def test_what_is_told_twice_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The CLI puts it over a packaged job's settings, which then gives them to `epochs`."""
    told = Told.read({"SLUICEGATE_CHECKPOINT": "there", "SLUICEGATE_EPOCHS": '{"overlap": true}'})
    with caplog.at_level(logging.INFO):
        told.over(*told.over("here", EpochSettings()))
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SLUICEGATE_EPOCHS", "{", "no JSON"),
        ("SLUICEGATE_EPOCHS", "[]", "holds a list"),
        ("SLUICEGATE_EPOCHS", '{"intervall": "1 second"}', "did you mean 'interval'"),
        ("SLUICEGATE_EPOCHS", '{"timeout_s": "soon"}', "which is no float"),
        ("SLUICEGATE_EPOCHS", '{"state_backend": "memory"}', "state would be gone"),
        ("SLUICEGATE_SPARK_CONF", '{"spark.a": null}', "spark.a is None"),
        ("SLUICEGATE_PURPOSE", "rest", "'rest'"),
    ],
)
def test_what_cannot_work_is_refused(variable: str, value: str, said: str) -> None:
    with pytest.raises(SettingsInvalid, match=said):
        Told.read({variable: value})


def test_sparks_settings_are_text_as_spark_writes_it() -> None:
    conf = Told.read({"SLUICEGATE_SPARK_CONF": '{"a": true, "b": 3, "c": "2g"}'}).spark_conf
    assert conf == {"a": "true", "b": "3", "c": "2g"}
