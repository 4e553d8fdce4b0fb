"""Conversion between JSON objects and typed resources."""

import dataclasses
from typing import Any

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.codec import parse, render
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import (
    AcceptedSpecStatus,
    CheckpointStatus,
    DriverStatus,
    FailureStatus,
    StreamingJobStatus,
)

WHERE = "StreamingJob shop/clicks: spec"
LEAST: dict[str, Any] = {
    "image": "jobs:1",
    "mainModule": "clicks",
    "checkpoint": {"volume": "store"},
}


def read(**changes: Any) -> StreamingJobSpec:
    return parse(StreamingJobSpec, {**LEAST, **changes}, WHERE)


def test_optional_fields_have_defaults() -> None:
    assert read().restart == RestartSettings()
    assert read().trigger == "Interval"


def test_library_settings_are_translated_from_the_names_of_the_api() -> None:
    made = read(
        epochs={"minPauseMilliseconds": 0, "interval": "2 seconds", "delivery": "AtLeastOnce"},
        restart={
            "strategy": "FixedDelay",
            "attempts": 7,
            "delaySeconds": 1,
            "resetAfterSeconds": 5,
        },
    )
    assert (made.epochs.min_pause_ms, made.epochs.interval) == (0, "2 seconds")
    assert made.epochs.delivery == "at-least-once"
    assert made.restart == RestartSettings(
        restart="fixed-delay", restart_attempts=7, restart_delay_s=1.0, restart_reset_s=5.0
    )


def test_available_now_is_an_interval_in_the_library() -> None:
    assert read(trigger="AvailableNow").epoch_settings().interval == "available-now"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"imagee": "x"}, "unknown field 'imagee'; did you mean 'image'?"),
        ({"image": 3}, "spec.image is 3; it must be a string"),
        ({"suspend": "yes"}, "spec.suspend is 'yes'; it must be true or false"),
        ({"restartNonce": True}, "spec.restartNonce is True; it must be an integer"),
        ({"arguments": "x"}, "spec.arguments is 'x'; it must be a list"),
        ({"arguments": [1]}, "spec.arguments[0] is 1; it must be a string"),
        ({"sparkConf": {"a": 1}}, "spec.sparkConf[a] is 1; it must be a string"),
        ({"driver": []}, "spec.driver is []; it must be a mapping"),
        ({"driver": {"cores": 0}}, "spec.driver.cores is 0; it must be at least 1"),
        (
            {"driver": {"memory": "1 GB"}},
            "spec.driver.memory is '1 GB'; it must be a string that matches",
        ),
        ({"checkpoint": {}}, "spec.checkpoint lacks volume"),
        ({"trigger": "hourly"}, "spec.trigger is 'hourly'; it must be one of Interval"),
        ({"epochs": {"maxConcurrent": 2}}, "spec.epochs: maxConcurrent must be 1"),
        ({"epochs": {"stateBackend": "Memory"}}, "spec.epochs: stateBackend must not be Memory"),
        (
            {"epochs": {"interval": "available-now"}},
            "for a job that ends by itself, set spec.trigger",
        ),
        (
            {"epochs": {"applyTimeoutSeconds": 0}},
            "applyTimeoutSeconds is 0.0; it must be greater than 0",
        ),
        ({"epochs": {"timeoutS": 3}}, "unknown field 'timeoutS'; did you mean 'timeoutSeconds'?"),
        ({"epochs": {"delivery": "exactly-once"}}, "did you mean 'ExactlyOnce'?"),
        ({"epochs": {"delivery": "exactly once"}}, "must be one of ExactlyOnce, AtLeastOnce"),
        ({"restart": {"jitter": 2}}, "spec.restart.jitter is 2.0; it must be at most 1"),
        ({"restart": {"attempts": -1}}, "spec.restart.attempts is -1; it must be at least 0"),
        ({"mainFile": "x.py"}, "set exactly one of mainFile and mainModule"),
        ({"schedule": {"cron": "0 3 * * *"}}, "a schedule needs a trigger that ends by itself"),
        ({"trigger": "Once", "upgradeMode": "Savepoint"}, "upgraded between its runs"),
        (
            {"trigger": "Once", "schedule": {"cron": "0 3 * * *"}, "ttlSecondsAfterFinished": 0},
            "so ttlSecondsAfterFinished cannot be set",
        ),
        ({"ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished is -1; it must be at least 0"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        read(**changes)
    assert says in caught.value.what
    assert caught.value.what.startswith(WHERE)
    assert (
        caught.value.data
        == "a running driver continues with its old spec; no new driver is started"
    )


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (
            SavepointSpec,
            {"job": "a", "stop": True, "schedule": {"cron": "0 3 * * *"}},
            "exclude each",
        ),
        (SavepointSpec, {"job": "a", "historyMaxAgeSeconds": 60}, "only a Savepoint with a sch"),
        (CheckpointVolumeSpec, {"bucket": "store", "reclaimPolicy": "Delete"}, "needs a prefix"),
        (
            CheckpointVolumeSpec,
            {"bucket": "store", "endpoint": "http://minio", "authoritySecret": "ca"},
            "needs an https endpoint",
        ),
    ],
)
def test_the_rules_of_the_other_kinds_are_checked(
    kind: type[object], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsInvalid, match=says):
        parse(kind, given, "spec")


@pytest.mark.parametrize(
    ("changes", "restarts"),
    [
        ({"image": "jobs:2"}, True),
        ({"epochs": {"minPauseMilliseconds": 1}}, True),
        ({"suspend": True}, False),
        ({"restartNonce": 1}, False),
        ({"progressDeadlineSeconds": 5}, False),
        ({"restart": {"attempts": 9}}, False),
        ({"upgradeMode": "Stateless"}, False),
        ({"ttlSecondsAfterFinished": 60}, False),
    ],
)
def test_only_fields_that_the_driver_sees_change_the_hash(
    changes: dict[str, Any],
    restarts: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    assert (read(**changes).running_hash() != read().running_hash()) is restarts


def test_a_spec_survives_a_round_trip() -> None:
    written = {
        **LEAST,
        "epochs": {"delivery": "AtMostOnce", "stateBackend": "HDFS"},
        "restart": {"strategy": "None"},
        "schedule": {"cron": "0 3 * * *"},
        "trigger": "Once",
        "driver": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
    }
    assert render(parse(StreamingJobSpec, written, WHERE)) == written


def test_a_status_survives_a_round_trip() -> None:
    status = StreamingJobStatus(
        driver=DriverStatus(state="Active", start_time=1.25, stop_reason="Suspend"),
        checkpoint=CheckpointStatus(number=2, last_epoch=4, last_epoch_time=1.5),
        failures=(FailureStatus(kind="Application", time=3.0, run_s=0.5),),
        failure_reason="DriverFailed",
        unconfirmed_attempts=(1, 2),
    )
    written = render(status)
    assert written["checkpoint"] == {
        "number": 2,
        "lastEpoch": 4,
        "lastEpochTime": "1970-01-01T00:00:01.500Z",
    }
    assert written["failures"][0]["runSeconds"] == 0.5
    assert written["unconfirmedAttempts"] == [1, 2]
    assert parse(StreamingJobStatus, written, "status") == status


def test_a_recorded_spec_equals_the_mapping_that_it_was_made_of() -> None:
    """The API server returns 180.0 as 180, with sorted names."""
    recorded = AcceptedSpecStatus(generation=1, spec_hash="", spec={"b": {"c": 180.0}, "a": [1]})
    read = AcceptedSpecStatus(generation=1, spec_hash="", spec={"a": [1], "b": {"c": 180}})
    assert recorded == read
    assert recorded.spec == {"a": [1], "b": {"c": 180}}
    assert recorded != dataclasses.replace(read, spec={"a": [1]})
    assert render(recorded)["spec"] == {"a": [1], "b": {"c": 180}}
