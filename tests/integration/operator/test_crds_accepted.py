"""The CustomResourceDefinitions on a real API server: validation, defaults, columns and subresources."""

from dataclasses import dataclass
from typing import Any

import pytest

from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, KINDS, SAVEPOINT, STREAMING_JOB, Kind
from tests.integration.operator.api import Api, rejection
from tests.integration.operator.examples import BATCH_JOB, FULL, MINIMAL, MINIMAL_JOB, merged

JOB, VOLUME = STREAMING_JOB, CHECKPOINT_VOLUME
for_each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@dataclass(frozen=True)
class Rejected:
    """A spec that the API server rejects: the kind's minimal spec with a change, and part of the message."""

    kind: Kind
    change: dict[str, Any]
    message: str

    def __str__(self) -> str:
        """Return the test's ID."""
        return f"{self.kind.name} {self.change}"[:80]


TOO_LONG = "x" * 5000

INVALID_SPECS = [
    # rules
    Rejected(JOB, {"mainModule": None}, "set exactly one of mainFile and mainModule"),
    Rejected(JOB, {"mainFile": "/app/main.py"}, "set exactly one of mainFile and mainModule"),
    Rejected(
        JOB, {"schedule": {"cron": "0 * * * *"}}, "a schedule needs a trigger that ends by itself"
    ),
    Rejected(
        JOB,
        {"trigger": "Once", "schedule": {"cron": "0 * * * *"}, "ttlSecondsAfterFinished": 0},
        "so ttlSecondsAfterFinished cannot be set",
    ),
    Rejected(JOB, {"checkpoint": {"path": "savepoints/a"}}, "must not begin with savepoints"),
    Rejected(JOB, {"checkpoint": {"path": "#"}}, "spec.checkpoint.path"),
    Rejected(JOB, {"checkpoint": {"path": "a/../b"}}, "spec.checkpoint.path"),
    Rejected(VOLUME, {"prefix": "shop#1"}, "spec.prefix"),
    Rejected(
        JOB, {"trigger": "Once", "upgradeMode": "Savepoint"}, "upgradeMode Savepoint needs trigger"
    ),
    Rejected(
        JOB, {"trigger": "Once", "rollback": {"enabled": True}}, "rollback needs trigger Interval"
    ),
    Rejected(JOB, {"epochs": {"maxConcurrent": 2}}, "maxConcurrent must be 1"),
    Rejected(JOB, {"epochs": {"stateBackend": "Memory"}}, "stateBackend must not be Memory"),
    Rejected(JOB, {"epochs": {"interval": "available-now"}}, "interval must be a number and milli"),
    Rejected(JOB, {"epochs": {"interval": "10"}}, "interval must be a number and milliseconds"),
    Rejected(VOLUME, {"reclaimPolicy": "Delete"}, "reclaimPolicy Delete needs a prefix"),
    Rejected(
        SAVEPOINT,
        {"stop": True, "schedule": {"cron": "0 3 * * *"}},
        "stop and schedule exclude each other",
    ),
    Rejected(SAVEPOINT, {"historyMaxAgeSeconds": 60}, "only a Savepoint with a schedule can"),
    Rejected(
        JOB,
        {"sparkConf": {"spark.a": "1", "spark.master": "local"}},
        "sparkConf[spark.master] cannot be set: the operator sets it",
    ),
    Rejected(
        JOB,
        {"sparkConf": {"spark.authenticate.secret": "x"}},
        "begin with spark.authenticate cannot be set",
    ),
    Rejected(
        JOB,
        {"sparkConf": {"spark.speculation": "True"}},
        "sparkConf[spark.speculation] must be 'false'",
    ),
    Rejected(
        JOB, {"schedule": {"cron": "0 24 * * *"}, "trigger": "Once"}, "a field that is not valid"
    ),
    # required fields
    Rejected(JOB, {"image": None}, "spec.image: Required value"),
    Rejected(JOB, {"checkpoint": None}, "spec.checkpoint: Required value"),
    Rejected(JOB, {"checkpoint": {"volume": None}}, "spec.checkpoint.volume: Required value"),
    Rejected(JOB, {"tracing": {}}, "spec.tracing.endpoint: Required value"),
    Rejected(JOB, {"schedule": {}, "trigger": "Once"}, "spec.schedule.cron: Required value"),
    Rejected(VOLUME, {"bucket": None}, "spec.bucket: Required value"),
    Rejected(SAVEPOINT, {"job": None}, "spec.job: Required value"),
    # enums
    Rejected(JOB, {"imagePullPolicy": "Often"}, '"IfNotPresent", "Always", "Never"'),
    Rejected(JOB, {"trigger": "sometimes"}, '"Interval", "AvailableNow", "Once"'),
    Rejected(JOB, {"upgradeMode": "fast"}, '"LastState", "Savepoint", "Stateless"'),
    Rejected(JOB, {"restart": {"strategy": "always"}}, '"ExponentialDelay", "FixedDelay"'),
    Rejected(JOB, {"epochs": {"delivery": "twice"}}, '"ExactlyOnce", "AtLeastOnce"'),
    Rejected(JOB, {"epochs": {"onCancel": "keep"}}, '"Retain", "Delete"'),
    Rejected(JOB, {"nodeLost": {"statefulPolicy": "Guess"}}, '"WaitForConfirmation", "Restart"'),
    Rejected(VOLUME, {"reclaimPolicy": "Recycle"}, '"Retain", "Delete"'),
    Rejected(SAVEPOINT, {"reclaimPolicy": "Recycle"}, '"Retain", "Delete"'),
    # bounds
    Rejected(
        JOB,
        {"terminationGracePeriodSeconds": 0},
        "spec.terminationGracePeriodSeconds in body should be greater than or equal to 1",
    ),
    Rejected(JOB, {"savepointTimeoutSeconds": 0}, "should be greater than or equal to 1"),
    Rejected(JOB, {"driver": {"cores": 0}}, "should be greater than or equal to 1"),
    Rejected(
        JOB,
        {"standby": 1, "trigger": "Once", "executor": {"instances": 0}},
        "a standby needs trigger Interval",
    ),
    Rejected(JOB, {"standby": 1}, "a standby needs executor.instances 0"),
    Rejected(
        JOB, {"standby": 2, "executor": {"instances": 0}}, "should be less than or equal to 1"
    ),
    Rejected(JOB, {"executor": {"instances": -1}}, "should be greater than or equal to 0"),
    Rejected(JOB, {"progressDeadlineSeconds": -1}, "should be greater than or equal to 0"),
    Rejected(
        JOB,
        {"rollback": {"deadlineSeconds": 0}},
        "spec.rollback.deadlineSeconds in body should be greater",
    ),
    Rejected(JOB, {"nodeLost": {"deadlineSeconds": -1}}, "should be greater than or equal to 0"),
    Rejected(JOB, {"startup": {"imagePullAttempts": -1}}, "should be greater than or equal to 0"),
    Rejected(JOB, {"epochs": {"minPauseMilliseconds": -1}}, "should be greater than or equal to 0"),
    Rejected(
        JOB,
        {"epochs": {"applyTimeoutSeconds": 0}},
        "spec.epochs.applyTimeoutSeconds in body should be greater than 0",
    ),
    Rejected(
        JOB,
        {"restart": {"intervalSeconds": 0}},
        "spec.restart.intervalSeconds in body should be greater than 0",
    ),
    Rejected(JOB, {"restart": {"jitter": 1.5}}, "should be less than or equal to 1"),
    Rejected(JOB, {"restart": {"multiplier": 0.5}}, "should be greater than or equal to 1"),
    Rejected(VOLUME, {"quotaBytes": -1}, "should be greater than or equal to 0"),
    Rejected(VOLUME, {"retention": {"epochs": 0}}, "should be greater than or equal to 1"),
    Rejected(SAVEPOINT, {"history": 0}, "should be greater than or equal to 1"),
    # patterns and lengths
    Rejected(JOB, {"driver": {"memory": "lots"}}, "should match '^[0-9]+[kmgtKMGT]?$'"),
    Rejected(
        JOB,
        {"schedule": {"cron": "@daily"}, "trigger": "Once"},
        "spec.schedule.cron in body should match",
    ),
    Rejected(JOB, {"image": ""}, "spec.image in body should be at least 1 chars long"),
    Rejected(JOB, {"image": TOO_LONG}, "Too long: may not be more than 4096"),
    Rejected(VOLUME, {"bucket": "No_Such"}, "spec.bucket in body should match"),
    Rejected(VOLUME, {"endpoint": "minio:9000"}, "should match '^https?://("),
    Rejected(
        VOLUME, {"endpoint": "http://minio", "authoritySecret": "ca"}, "needs an https endpoint"
    ),
    Rejected(VOLUME, {"prefix": "/team"}, "spec.prefix in body should match"),
    Rejected(
        JOB,
        {"trigger": "Once", "schedule": {"cron": "0 3 * * *", "concurrencyPolicy": "Allow"}},
        "concurrencyPolicy Allow would run two drivers with one checkpoint",
    ),
    # types and unknown fields
    Rejected(JOB, {"suspend": "yes"}, "spec.suspend: Invalid value"),
    Rejected(JOB, {"executor": {"instances": "3"}}, "spec.executor.instances: Invalid value"),
    Rejected(JOB, {"sparkConf": {"spark.cores.max": 4}}, "must be of type string"),
    Rejected(JOB, {"arguments": "--once"}, "must be of type array"),
    Rejected(JOB, {"imagee": "x"}, 'unknown field "spec.imagee"'),
    Rejected(JOB, {"epochs": {"intervall": "x"}}, 'unknown field "spec.epochs.intervall"'),
]


@pytest.mark.parametrize("case", INVALID_SPECS, ids=str)
def test_an_invalid_spec_is_rejected_with_the_reason(
    api: Api, namespace: str, case: Rejected
) -> None:
    spec = merged(MINIMAL[case.kind], case.change)
    answer = rejection(lambda: api.create(namespace, "bad", spec, case.kind))
    assert answer.status in (400, 422)
    assert case.message in answer.message


FORBIDDEN_CHANGES = [
    Rejected(JOB, {"checkpoint": {"volume": "other"}}, "volume and path cannot change"),
    Rejected(JOB, {"checkpoint": {"path": "elsewhere"}}, "volume and path cannot change"),
    Rejected(JOB, {"epochs": {"delivery": "AtLeastOnce"}}, "only upgradeMode Stateless"),
    Rejected(JOB, {"epochs": {"stateBackend": "HDFS"}}, "only upgradeMode Stateless"),
    Rejected(VOLUME, {"bucket": "other"}, "bucket and prefix cannot change"),
    Rejected(VOLUME, {"prefix": "team"}, "bucket and prefix cannot change"),
    Rejected(SAVEPOINT, {"job": "other"}, "job and volume cannot change; create another Savepoint"),
    Rejected(
        SAVEPOINT, {"volume": "other"}, "job and volume cannot change; create another Savepoint"
    ),
]


@pytest.mark.parametrize("case", FORBIDDEN_CHANGES, ids=str)
def test_immutable_fields_cannot_change(api: Api, namespace: str, case: Rejected) -> None:
    api.create(namespace, "kept", MINIMAL[case.kind], case.kind)
    answer = rejection(lambda: api.change(namespace, "kept", {"spec": case.change}, case.kind))
    assert answer.status == 422
    assert case.message in answer.message


def test_optional_immutable_fields_cannot_be_removed(api: Api, namespace: str) -> None:
    api.create(namespace, "job", FULL[JOB], JOB)
    change = {"spec": {"checkpoint": {"path": None}}}
    assert "cannot change" in rejection(lambda: api.change(namespace, "job", change)).message
    spec = {**FULL[VOLUME], "reclaimPolicy": "Retain"}
    api.create(namespace, "volume", spec, VOLUME)
    removal = {"spec": {"prefix": None}}
    assert (
        "cannot change"
        in rejection(lambda: api.change(namespace, "volume", removal, VOLUME)).message
    )


def test_a_stateless_upgrade_may_change_delivery(api: Api, namespace: str) -> None:
    api.create(namespace, "job", MINIMAL_JOB)
    change = {"upgradeMode": "Stateless", "epochs": {"delivery": "AtLeastOnce"}}
    changed = api.change(namespace, "job", {"spec": change})
    assert changed["spec"]["epochs"]["delivery"] == "AtLeastOnce"
    assert changed["metadata"]["generation"] == 2


@for_each_kind
def test_a_spec_with_all_fields_is_stored_unchanged(api: Api, namespace: str, kind: Kind) -> None:
    assert api.create(namespace, "full", FULL[kind], kind)["spec"] == FULL[kind]


def test_a_batch_job_on_a_schedule_is_accepted(api: Api, namespace: str) -> None:
    created = api.create(namespace, "batch", BATCH_JOB)
    assert created["spec"]["schedule"] == BATCH_JOB["schedule"]


@for_each_kind
def test_the_server_fills_in_the_operators_defaults(api: Api, namespace: str, kind: Kind) -> None:
    """The stored minimal spec parses to the same settings as the given one."""
    stored = api.create(namespace, "least", MINIMAL[kind], kind)["spec"]
    assert parse(kind.spec, stored, "stored") == parse(kind.spec, MINIMAL[kind], "least")
    if kind is JOB:
        assert stored["epochs"]["interval"] == "10 seconds"
        assert stored["restart"]["strategy"] == "ExponentialDelay"
        assert stored["executor"]["instances"] == 1
        assert stored["terminationGracePeriodSeconds"] == 180
    if kind is VOLUME:
        assert stored["retention"] == {"savepoints": 0, "epochs": 100}


@for_each_kind
def test_only_the_subresource_writes_a_status(api: Api, namespace: str, kind: Kind) -> None:
    api.create(namespace, "one", MINIMAL[kind], kind)
    api.change(namespace, "one", {"status": {"phase": "Failed"}}, kind)
    assert "status" not in api.get(namespace, "one", kind)
    written = api.change_status(namespace, "one", {"phase": "Failed"}, kind)
    assert written["status"]["phase"] == "Failed"
    assert written["metadata"]["generation"] == 1


@for_each_kind
def test_an_unknown_phase_is_rejected(api: Api, namespace: str, kind: Kind) -> None:
    api.create(namespace, "one", MINIMAL[kind], kind)
    answer = rejection(lambda: api.change_status(namespace, "one", {"phase": "Fine"}, kind))
    assert "status.phase: Unsupported value" in answer.message


COLUMNS: dict[Kind, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    JOB: (
        {
            "phase": "Running",
            "attempt": 3,
            "checkpoint": {"number": 1, "lastEpoch": 7},
            "restarts": 2,
            "lastError": "boom",
        },
        {
            "Name": "one",
            "Phase": "Running",
            "Attempt": 3,
            "Epoch": 7,
            "Restarts": 2,
            "Error": "boom",
        },
        ["Name", "Phase", "Attempt", "Epoch", "Epoch Age", "Restarts", "Age"],
    ),
    VOLUME: (
        {"phase": "Ready", "bytes": 12, "objects": 3},
        {"Phase": "Ready", "Bucket": "checkpoints", "Bytes": 12, "Objects": 3},
        ["Name", "Phase", "Bucket", "Bytes", "Objects", "Epoch Age", "Age"],
    ),
    SAVEPOINT: (
        {
            "phase": "Ready",
            "taken": [
                {"location": "s3://b/p", "epoch": 5, "completionTime": "2026-01-31T12:00:00Z"}
            ],
        },
        {"Job": "orders", "Phase": "Ready", "Epoch": 5, "Location": "s3://b/p"},
        ["Name", "Job", "Phase", "Epoch", "Age"],
    ),
}


@for_each_kind
def test_kubectl_get_shows_the_columns(api: Api, namespace: str, kind: Kind) -> None:
    status, expected, columns = COLUMNS[kind]
    api.create(namespace, "one", MINIMAL[kind], kind)
    api.change_status(namespace, "one", status, kind)
    table = api.table(namespace, kind)
    definitions = table["columnDefinitions"]
    cells = dict(
        zip(
            [definition["name"] for definition in definitions],
            table["rows"][0]["cells"],
            strict=True,
        )
    )
    assert {name: cells[name] for name in expected} == expected
    assert [
        definition["name"] for definition in definitions if definition["priority"] == 0
    ] == columns


def test_kinds_have_short_names_and_a_category(api: Api) -> None:
    served = api.request("GET", "/apis/sluicegate.dev/v1alpha1")["resources"]
    by_kind = {resource["kind"]: resource for resource in served if "/" not in resource["name"]}
    short_names = {kind.name: by_kind[kind.name]["shortNames"] for kind in KINDS}
    assert short_names == {
        "StreamingJob": ["sjob"],
        "CheckpointVolume": ["cpvol"],
        "Savepoint": ["sp"],
    }
    assert all(by_kind[kind.name]["categories"] == ["sluicegate"] for kind in KINDS)


@for_each_kind
def test_the_server_explains_each_field(api: Api, kind: Kind) -> None:
    """`kubectl explain` has a description of each field of a spec."""
    schemas = api.request("GET", "/openapi/v3/apis/sluicegate.dev/v1alpha1")["components"][
        "schemas"
    ]
    spec = schemas[f"dev.sluicegate.v1alpha1.{kind.name}"]["properties"]["spec"]["properties"]
    assert all(field.get("description") for field in spec.values())


def test_a_job_name_that_is_too_long_for_pods_is_rejected(api: Api, namespace: str) -> None:
    api.create(namespace, "j" * 52, MINIMAL_JOB)
    answer = rejection(lambda: api.create(namespace, "j" * 53, MINIMAL_JOB))
    assert answer.status == 422
    assert "52" in answer.message
