"""From the API's dictionaries to typed resources and back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import StreamingJobStatus
from sluicegate_operator.resources.parsing import parse, render, to_instant, to_text
from sluicegate_operator.resources.savepoint import SavepointSpec
from sluicegate_operator.resources.volume import CheckpointVolumeSpec

from .made import alive, spec

WHERE = "StreamingJob shop/clicks: spec"
LEAST: dict[str, Any] = {
    "image": "jobs:1",
    "mainModule": "clicks",
    "checkpoint": {"volume": "store"},
}


def read(**changes: Any) -> StreamingJobSpec:
    return parse(StreamingJobSpec, {**LEAST, **changes}, WHERE)


def test_the_least_that_can_be_written_is_enough() -> None:
    assert read().restart == RestartSettings()
    assert read().trigger == "interval"


def test_settings_are_read_by_their_names_in_the_resource() -> None:
    made = read(
        epochs={"minPauseMs": 0, "interval": "2 seconds"},
        restart={"strategy": "fixed-delay", "attempts": 7, "delayS": 1},
    )
    assert (made.epochs.min_pause_ms, made.epochs.interval) == (0, "2 seconds")
    assert made.restart == RestartSettings(
        restart="fixed-delay", restart_attempts=7, restart_delay_s=1.0
    )


def test_a_trigger_is_an_interval_to_the_library() -> None:
    assert read(trigger="availableNow").epoch_settings().interval == "available-now"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"imagee": "x"}, "there is no setting 'imagee'; did you mean 'image'?"),
        ({"image": 3}, "spec.image is 3; it must be a text"),
        ({"suspend": "yes"}, "spec.suspend is 'yes'; it must be true or false"),
        ({"restartNonce": True}, "spec.restartNonce is True; it must be a whole number"),
        ({"arguments": "x"}, "spec.arguments is 'x'; it must be a list"),
        ({"arguments": [1]}, "spec.arguments[0] is 1; it must be a text"),
        ({"sparkConf": {"a": 1}}, "spec.sparkConf[a] is 1; it must be a text"),
        ({"driver": []}, "spec.driver is []; it must be a mapping"),
        ({"driver": {"cores": 0}}, "spec.driver.cores is 0; it must be at least 1"),
        ({"driver": {"memory": "1 GB"}}, "spec.driver.memory is '1 GB'; it must be a text like"),
        ({"checkpoint": {}}, "spec.checkpoint lacks volume"),
        ({"trigger": "hourly"}, "spec.trigger is 'hourly'; it must be one of interval"),
        ({"epochs": {"maxConcurrent": 2}}, "spec.epochs: max-concurrent is 2"),
        ({"epochs": {"delivery": "exactly once"}}, "must be one of exactly-once, at-least-once"),
        ({"restart": {"attempts": -1}}, "spec.restart.attempts is -1; it must be at least 0"),
        ({"mainFile": "x.py"}, "give one of mainFile and mainModule"),
        ({"schedule": {"cron": "0 3 * * *"}}, "a schedule needs a trigger that ends by itself"),
        ({"trigger": "once", "upgradeMode": "savepoint"}, "upgraded between runs"),
    ],
)
def test_what_cannot_work_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        read(**changes)
    assert says in caught.value.what
    assert caught.value.what.startswith(WHERE)
    assert caught.value.data == "a driver that runs is left as it is; none is started"


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (SavepointSpec, {"job": "a", "stop": True, "schedule": {"cron": "0 3 * * *"}}, "stop ends"),
        (CheckpointVolumeSpec, {"bucket": "store", "reclaimPolicy": "Delete"}, "needs a prefix"),
        (
            CheckpointVolumeSpec,
            {"bucket": "store", "endpoint": "http://minio", "authoritySecret": "ca"},
            "needs an https endpoint",
        ),
    ],
)
def test_the_other_kinds_have_rules_too(
    kind: type[object], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsInvalid, match=says):
        parse(kind, given, "spec")


@pytest.mark.parametrize(
    ("changes", "restarts"),
    [
        ({"image": "jobs:2"}, True),
        ({"epochs": {"minPauseMs": 1}}, True),
        ({"suspend": True}, False),
        ({"restartNonce": 1}, False),
        ({"stuckAfterS": 5}, False),
        ({"restart": {"attempts": 9}}, False),
        ({"upgradeMode": "stateless"}, False),
    ],
)
def test_only_what_the_driver_sees_needs_a_new_driver(
    changes: dict[str, Any],
    restarts: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    assert (read(**changes).running_hash() != read().running_hash()) is restarts


def test_a_spec_is_rendered_as_it_was_written() -> None:
    written = {
        **LEAST,
        "restart": {"strategy": "none"},
        "schedule": {"cron": "0 3 * * *"},
        "trigger": "once",
        "driver": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
    }
    assert render(parse(StreamingJobSpec, written, WHERE)) == written


def test_a_status_survives_the_api() -> None:
    status = alive(spec(), last_epoch=4, last_epoch_time=1.5, failed="x", may_be_alive=(1, 2))
    assert parse(StreamingJobStatus, render(status), "status") == status


@given(st.integers(0, 4_000_000_000_000))
def test_an_instant_survives_the_api(ms: int) -> None:
    """Or the status would seem changed at each look, and be written for ever."""
    instant = round(ms / 1000, 3)
    assert to_instant(to_text(instant)) == instant


def test_an_instant_of_another_writer_is_read() -> None:
    assert to_text(to_instant("2027-01-15T09:00:00+01:00")) == "2027-01-15T08:00:00.000Z"
