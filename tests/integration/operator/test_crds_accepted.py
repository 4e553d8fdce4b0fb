"""The CustomResourceDefinitions on a real API server: validation, defaults, columns and subresources."""

from dataclasses import dataclass
from typing import Any

import pytest

from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, KINDS, SAVEPOINT, STREAMING_JOB, Kind
from tests.integration.operator.api import Api, rejection
from tests.integration.operator.examples import BATCH_JOB, FULL, LEAST, LEAST_JOB, merged

JOB, VOLUME = STREAMING_JOB, CHECKPOINT_VOLUME
by_name = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@dataclass(frozen=True)
class Bad:
    """An invalid spec: the kind's minimal spec with a change, and part of the error message."""

    kind: Kind
    change: dict[str, Any]
    says: str

    def __str__(self) -> str:
        """Return the test's ID."""
        return f"{self.kind.name} {self.change}"[:80]


LONG = "x" * 5000

BAD = [
    # rules
    Bad(JOB, {"mainModule": None}, "set exactly one of mainFile and mainModule"),
    Bad(JOB, {"mainFile": "/app/main.py"}, "set exactly one of mainFile and mainModule"),
    Bad(JOB, {"schedule": {"cron": "0 * * * *"}}, "a schedule needs a trigger that ends by itself"),
    Bad(
        JOB, {"trigger": "Once", "upgradeMode": "Savepoint"}, "upgradeMode Savepoint needs trigger"
    ),
    Bad(JOB, {"trigger": "Once", "rollback": {"enabled": True}}, "rollback needs trigger Interval"),
    Bad(JOB, {"epochs": {"maxConcurrent": 2}}, "maxConcurrent must be 1"),
    Bad(JOB, {"epochs": {"stateBackend": "Memory"}}, "stateBackend must not be Memory"),
    Bad(JOB, {"epochs": {"interval": "available-now"}}, "interval must be a number and milli"),
    Bad(JOB, {"epochs": {"interval": "10"}}, "interval must be a number and milliseconds"),
    Bad(VOLUME, {"reclaimPolicy": "Delete"}, "reclaimPolicy Delete needs a prefix"),
    Bad(
        SAVEPOINT,
        {"stop": True, "schedule": {"cron": "0 3 * * *"}},
        "stop and schedule exclude each other",
    ),
    # required fields
    Bad(JOB, {"image": None}, "spec.image: Required value"),
    Bad(JOB, {"checkpoint": None}, "spec.checkpoint: Required value"),
    Bad(JOB, {"checkpoint": {"volume": None}}, "spec.checkpoint.volume: Required value"),
    Bad(JOB, {"tracing": {}}, "spec.tracing.endpoint: Required value"),
    Bad(JOB, {"schedule": {}, "trigger": "Once"}, "spec.schedule.cron: Required value"),
    Bad(VOLUME, {"bucket": None}, "spec.bucket: Required value"),
    Bad(SAVEPOINT, {"job": None}, "spec.job: Required value"),
    # enums
    Bad(JOB, {"imagePullPolicy": "Often"}, '"IfNotPresent", "Always", "Never"'),
    Bad(JOB, {"trigger": "sometimes"}, '"Interval", "AvailableNow", "Once"'),
    Bad(JOB, {"upgradeMode": "fast"}, '"LastState", "Savepoint", "Stateless"'),
    Bad(JOB, {"restart": {"strategy": "always"}}, '"ExponentialDelay", "FixedDelay"'),
    Bad(JOB, {"epochs": {"delivery": "twice"}}, '"ExactlyOnce", "AtLeastOnce"'),
    Bad(JOB, {"epochs": {"onCancel": "keep"}}, '"Retain", "Delete"'),
    Bad(JOB, {"nodeLost": {"statefulPolicy": "Guess"}}, '"WaitForConfirmation", "Restart"'),
    Bad(VOLUME, {"reclaimPolicy": "Recycle"}, '"Retain", "Delete"'),
    Bad(SAVEPOINT, {"reclaimPolicy": "Recycle"}, '"Retain", "Delete"'),
    # bounds
    Bad(
        JOB,
        {"terminationGracePeriodSeconds": 0},
        "spec.terminationGracePeriodSeconds in body should be greater than or equal to 1",
    ),
    Bad(JOB, {"savepointTimeoutSeconds": 0}, "should be greater than or equal to 1"),
    Bad(JOB, {"driver": {"cores": 0}}, "should be greater than or equal to 1"),
    Bad(JOB, {"executor": {"instances": -1}}, "should be greater than or equal to 0"),
    Bad(JOB, {"progressDeadlineSeconds": -1}, "should be greater than or equal to 0"),
    Bad(
        JOB,
        {"rollback": {"deadlineSeconds": 0}},
        "spec.rollback.deadlineSeconds in body should be greater",
    ),
    Bad(JOB, {"nodeLost": {"deadlineSeconds": -1}}, "should be greater than or equal to 0"),
    Bad(JOB, {"startup": {"imagePullAttempts": -1}}, "should be greater than or equal to 0"),
    Bad(JOB, {"epochs": {"minPauseMilliseconds": -1}}, "should be greater than or equal to 0"),
    Bad(
        JOB,
        {"epochs": {"applyTimeoutSeconds": 0}},
        "spec.epochs.applyTimeoutSeconds in body should be greater than 0",
    ),
    Bad(
        JOB,
        {"restart": {"intervalSeconds": 0}},
        "spec.restart.intervalSeconds in body should be greater than 0",
    ),
    Bad(JOB, {"restart": {"jitter": 1.5}}, "should be less than or equal to 1"),
    Bad(JOB, {"restart": {"multiplier": 0.5}}, "should be greater than or equal to 1"),
    Bad(VOLUME, {"quotaBytes": -1}, "should be greater than or equal to 0"),
    Bad(VOLUME, {"retention": {"epochs": 0}}, "should be greater than or equal to 1"),
    Bad(SAVEPOINT, {"history": 0}, "should be greater than or equal to 1"),
    # patterns and lengths
    Bad(JOB, {"driver": {"memory": "lots"}}, "should match '^[0-9]+[kmgtKMGT]?$'"),
    Bad(
        JOB,
        {"schedule": {"cron": "@daily"}, "trigger": "Once"},
        "spec.schedule.cron in body should match",
    ),
    Bad(JOB, {"image": ""}, "spec.image in body should be at least 1 chars long"),
    Bad(JOB, {"image": LONG}, "Too long: may not be more than 4096"),
    Bad(VOLUME, {"bucket": "No_Such"}, "spec.bucket in body should match"),
    Bad(VOLUME, {"endpoint": "minio:9000"}, "should match '^https?://.+$'"),
    Bad(VOLUME, {"endpoint": "http://minio", "authoritySecret": "ca"}, "needs an https endpoint"),
    Bad(VOLUME, {"prefix": "/team"}, "spec.prefix in body should match"),
    # types and unknown fields
    Bad(JOB, {"suspend": "yes"}, "spec.suspend: Invalid value"),
    Bad(JOB, {"executor": {"instances": "3"}}, "spec.executor.instances: Invalid value"),
    Bad(JOB, {"sparkConf": {"spark.cores.max": 4}}, "must be of type string"),
    Bad(JOB, {"arguments": "--once"}, "must be of type array"),
    Bad(JOB, {"imagee": "x"}, 'unknown field "spec.imagee"'),
    Bad(JOB, {"epochs": {"intervall": "x"}}, 'unknown field "spec.epochs.intervall"'),
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_an_invalid_spec_is_rejected_with_the_reason(api: Api, namespace: str, bad: Bad) -> None:
    spec = merged(LEAST[bad.kind], bad.change)
    answer = rejection(lambda: api.create(namespace, "bad", spec, bad.kind))
    assert answer.status in (400, 422)
    assert bad.says in answer.message


CHANGES = [
    Bad(JOB, {"checkpoint": {"volume": "other"}}, "volume and path cannot change"),
    Bad(JOB, {"checkpoint": {"path": "elsewhere"}}, "volume and path cannot change"),
    Bad(JOB, {"epochs": {"delivery": "AtLeastOnce"}}, "only upgradeMode Stateless"),
    Bad(JOB, {"epochs": {"stateBackend": "HDFS"}}, "only upgradeMode Stateless"),
    Bad(VOLUME, {"bucket": "other"}, "bucket and prefix cannot change"),
    Bad(VOLUME, {"prefix": "team"}, "bucket and prefix cannot change"),
    Bad(SAVEPOINT, {"job": "other"}, "job and volume cannot change; create another Savepoint"),
    Bad(SAVEPOINT, {"volume": "other"}, "job and volume cannot change; create another Savepoint"),
]


@pytest.mark.parametrize("bad", CHANGES, ids=str)
def test_immutable_fields_cannot_change(api: Api, namespace: str, bad: Bad) -> None:
    api.create(namespace, "kept", LEAST[bad.kind], bad.kind)
    answer = rejection(lambda: api.change(namespace, "kept", {"spec": bad.change}, bad.kind))
    assert answer.status == 422
    assert bad.says in answer.message


def test_optional_immutable_fields_cannot_be_removed(api: Api, namespace: str) -> None:
    api.create(namespace, "job", FULL[JOB], JOB)
    change = {"spec": {"checkpoint": {"path": None}}}
    assert "cannot change" in rejection(lambda: api.change(namespace, "job", change)).message
    spec = {**FULL[VOLUME], "reclaimPolicy": "Retain"}
    api.create(namespace, "volume", spec, VOLUME)
    gone = {"spec": {"prefix": None}}
    assert (
        "cannot change" in rejection(lambda: api.change(namespace, "volume", gone, VOLUME)).message
    )


def test_a_stateless_upgrade_may_change_delivery(api: Api, namespace: str) -> None:
    api.create(namespace, "job", LEAST_JOB)
    change = {"upgradeMode": "Stateless", "epochs": {"delivery": "AtLeastOnce"}}
    changed = api.change(namespace, "job", {"spec": change})
    assert changed["spec"]["epochs"]["delivery"] == "AtLeastOnce"
    assert changed["metadata"]["generation"] == 2


@by_name
def test_a_spec_with_all_fields_is_stored_unchanged(api: Api, namespace: str, kind: Kind) -> None:
    assert api.create(namespace, "full", FULL[kind], kind)["spec"] == FULL[kind]


def test_a_batch_job_on_a_schedule_is_accepted(api: Api, namespace: str) -> None:
    made = api.create(namespace, "batch", BATCH_JOB)
    assert made["spec"]["schedule"] == BATCH_JOB["schedule"]


@by_name
def test_the_server_fills_in_the_operators_defaults(api: Api, namespace: str, kind: Kind) -> None:
    """The stored minimal spec parses to the same settings as the given one."""
    stored = api.create(namespace, "least", LEAST[kind], kind)["spec"]
    assert parse(kind.spec, stored, "stored") == parse(kind.spec, LEAST[kind], "least")
    if kind is JOB:
        assert stored["epochs"]["interval"] == "10 seconds"
        assert stored["restart"]["strategy"] == "ExponentialDelay"
        assert stored["executor"]["instances"] == 1
        assert stored["terminationGracePeriodSeconds"] == 180
    if kind is VOLUME:
        assert stored["retention"] == {"savepoints": 0, "epochs": 100}


@by_name
def test_only_the_subresource_writes_a_status(api: Api, namespace: str, kind: Kind) -> None:
    api.create(namespace, "one", LEAST[kind], kind)
    api.change(namespace, "one", {"status": {"phase": "Failed"}}, kind)
    assert "status" not in api.get(namespace, "one", kind)
    written = api.change_status(namespace, "one", {"phase": "Failed"}, kind)
    assert written["status"]["phase"] == "Failed"
    assert written["metadata"]["generation"] == 1


@by_name
def test_an_unknown_phase_is_rejected(api: Api, namespace: str, kind: Kind) -> None:
    api.create(namespace, "one", LEAST[kind], kind)
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


@by_name
def test_kubectl_get_shows_the_columns(api: Api, namespace: str, kind: Kind) -> None:
    status, shown, columns = COLUMNS[kind]
    api.create(namespace, "one", LEAST[kind], kind)
    api.change_status(namespace, "one", status, kind)
    table = api.table(namespace, kind)
    heads = table["columnDefinitions"]
    cells = dict(zip([head["name"] for head in heads], table["rows"][0]["cells"], strict=True))
    assert {name: cells[name] for name in shown} == shown
    assert [head["name"] for head in heads if head["priority"] == 0] == columns


def test_kinds_have_short_names_and_a_category(api: Api) -> None:
    served = api.request("GET", "/apis/sluicegate.dev/v1alpha1")["resources"]
    found = {r["kind"]: r for r in served if "/" not in r["name"]}
    short = {kind.name: found[kind.name]["shortNames"] for kind in KINDS}
    assert short == {
        "StreamingJob": ["sjob"],
        "CheckpointVolume": ["cpvol"],
        "Savepoint": ["sp"],
    }
    assert all(found[kind.name]["categories"] == ["sluicegate"] for kind in KINDS)


@by_name
def test_the_server_explains_each_field(api: Api, kind: Kind) -> None:
    """`kubectl explain` has a description of each field of a spec."""
    schemas = api.request("GET", "/openapi/v3/apis/sluicegate.dev/v1alpha1")["components"][
        "schemas"
    ]
    spec = schemas[f"dev.sluicegate.v1alpha1.{kind.name}"]["properties"]["spec"]["properties"]
    assert all(field.get("description") for field in spec.values())


def test_a_job_name_that_is_too_long_for_pods_is_rejected(api: Api, namespace: str) -> None:
    api.create(namespace, "j" * 52, LEAST_JOB)
    answer = rejection(lambda: api.create(namespace, "j" * 53, LEAST_JOB))
    assert answer.status == 422
    assert "52" in answer.message
