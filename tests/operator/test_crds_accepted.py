"""The schemas as a real API server takes them: what it refuses, fills in, shows and keeps."""

from dataclasses import dataclass
from typing import Any

import pytest

from sluicegate_operator.resources.kinds import (
    CHECKPOINT_VOLUME,
    KINDS,
    SAVEPOINT,
    STREAMING_JOB,
    Kind,
)
from sluicegate_operator.resources.parsing import parse
from tests.operator.api import Api, refused
from tests.operator.examples import BATCH_JOB, FULL, LEAST, LEAST_JOB, merged

JOB, VOLUME = STREAMING_JOB, CHECKPOINT_VOLUME
by_name = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@dataclass(frozen=True)
class Bad:
    """A spec that is refused: the kind's least one with a change, and a part of the message."""

    kind: Kind
    change: dict[str, Any]
    says: str

    def __str__(self) -> str:
        """Name it in a run's output."""
        return f"{self.kind.name} {self.change}"[:80]


LONG = "x" * 5000

BAD = [
    # rules
    Bad(JOB, {"mainModule": None}, "give one of mainFile and mainModule"),
    Bad(JOB, {"mainFile": "/app/main.py"}, "give one of mainFile and mainModule"),
    Bad(JOB, {"schedule": {"cron": "0 * * * *"}}, "a schedule needs a trigger that ends by itself"),
    Bad(JOB, {"trigger": "once", "upgradeMode": "savepoint"}, "has no upgradeMode savepoint"),
    Bad(JOB, {"trigger": "once", "rollback": {"enabled": True}}, "has no rollback: switch it off"),
    Bad(JOB, {"epochs": {"maxConcurrent": 2}}, "maxConcurrent must be 1"),
    Bad(JOB, {"epochs": {"stateBackend": "memory"}}, "stateBackend must not be memory"),
    Bad(JOB, {"epochs": {"interval": "available-now"}}, "interval must be a number and milli"),
    Bad(JOB, {"epochs": {"interval": "10"}}, "interval must be a number and milliseconds"),
    Bad(VOLUME, {"reclaimPolicy": "Delete"}, "reclaimPolicy Delete needs a prefix"),
    Bad(SAVEPOINT, {"stop": True, "schedule": {"cron": "0 3 * * *"}}, "cannot be on a schedule"),
    # what must be there
    Bad(JOB, {"image": None}, "spec.image: Required value"),
    Bad(JOB, {"checkpoint": None}, "spec.checkpoint: Required value"),
    Bad(JOB, {"checkpoint": {"volume": None}}, "spec.checkpoint.volume: Required value"),
    Bad(JOB, {"tracing": {}}, "spec.tracing.endpoint: Required value"),
    Bad(JOB, {"schedule": {}, "trigger": "once"}, "spec.schedule.cron: Required value"),
    Bad(VOLUME, {"bucket": None}, "spec.bucket: Required value"),
    Bad(SAVEPOINT, {"job": None}, "spec.job: Required value"),
    # choices
    Bad(JOB, {"imagePullPolicy": "Often"}, '"IfNotPresent", "Always", "Never"'),
    Bad(JOB, {"trigger": "sometimes"}, '"interval", "availableNow", "once"'),
    Bad(JOB, {"upgradeMode": "fast"}, '"last-state", "savepoint", "stateless"'),
    Bad(JOB, {"restart": {"strategy": "always"}}, '"exponential-delay", "fixed-delay"'),
    Bad(JOB, {"epochs": {"delivery": "twice"}}, '"exactly-once", "at-least-once"'),
    Bad(JOB, {"epochs": {"onCancel": "keep"}}, '"retain", "delete"'),
    Bad(JOB, {"lostNode": {"stateful": "guess"}}, '"wait-for-proof", "restart"'),
    Bad(VOLUME, {"reclaimPolicy": "Recycle"}, '"Retain", "Delete"'),
    Bad(SAVEPOINT, {"reclaimPolicy": "Recycle"}, '"Retain", "Delete"'),
    # bounds
    Bad(JOB, {"graceS": 0}, "spec.graceS in body should be greater than or equal to 1"),
    Bad(JOB, {"savepointTimeoutS": 0}, "should be greater than or equal to 1"),
    Bad(JOB, {"driver": {"cores": 0}}, "should be greater than or equal to 1"),
    Bad(JOB, {"executor": {"instances": -1}}, "should be greater than or equal to 0"),
    Bad(JOB, {"stuckAfterS": -1}, "should be greater than or equal to 0"),
    Bad(JOB, {"rollback": {"deadlineS": 0}}, "spec.rollback.deadlineS in body should be greater"),
    Bad(JOB, {"lostNode": {"deadlineS": -1}}, "should be greater than or equal to 0"),
    Bad(JOB, {"start": {"imageAttempts": -1}}, "should be greater than or equal to 0"),
    Bad(JOB, {"epochs": {"minPauseMs": -1}}, "should be greater than or equal to 0"),
    Bad(
        JOB,
        {"epochs": {"applyTimeoutS": 0}},
        "spec.epochs.applyTimeoutS in body should be greater than 0",
    ),
    Bad(
        JOB,
        {"restart": {"intervalS": 0}},
        "spec.restart.intervalS in body should be greater than 0",
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
        {"schedule": {"cron": "@daily"}, "trigger": "once"},
        "spec.schedule.cron in body should match",
    ),
    Bad(JOB, {"image": ""}, "spec.image in body should be at least 1 chars long"),
    Bad(JOB, {"image": LONG}, "Too long: may not be more than 4096"),
    Bad(VOLUME, {"bucket": "No_Such"}, "spec.bucket in body should match"),
    Bad(VOLUME, {"endpoint": "minio:9000"}, "should match '^https?://.+$'"),
    Bad(VOLUME, {"endpoint": "http://minio", "authoritySecret": "ca"}, "needs an https endpoint"),
    Bad(VOLUME, {"prefix": "/team"}, "spec.prefix in body should match"),
    # types, and what is not known
    Bad(JOB, {"suspend": "yes"}, "spec.suspend: Invalid value"),
    Bad(JOB, {"executor": {"instances": "3"}}, "spec.executor.instances: Invalid value"),
    Bad(JOB, {"sparkConf": {"spark.cores.max": 4}}, "must be of type string"),
    Bad(JOB, {"arguments": "--once"}, "must be of type array"),
    Bad(JOB, {"imagee": "x"}, 'unknown field "spec.imagee"'),
    Bad(JOB, {"epochs": {"intervall": "x"}}, 'unknown field "spec.epochs.intervall"'),
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_bad_spec_is_refused_in_words_that_say_why(api: Api, namespace: str, bad: Bad) -> None:
    spec = merged(LEAST[bad.kind], bad.change)
    answer = refused(lambda: api.create(namespace, "bad", spec, bad.kind))
    assert answer.status in (400, 422)
    assert bad.says in answer.message


CHANGES = [
    Bad(JOB, {"checkpoint": {"volume": "other"}}, "volume and path cannot change"),
    Bad(JOB, {"checkpoint": {"path": "elsewhere"}}, "volume and path cannot change"),
    Bad(JOB, {"epochs": {"delivery": "at-least-once"}}, "only upgradeMode stateless"),
    Bad(JOB, {"epochs": {"stateBackend": "hdfs"}}, "only upgradeMode stateless"),
    Bad(VOLUME, {"bucket": "other"}, "bucket and prefix cannot change"),
    Bad(VOLUME, {"prefix": "team"}, "bucket and prefix cannot change"),
    Bad(SAVEPOINT, {"job": "other"}, "job and volume cannot change: make another Savepoint"),
    Bad(SAVEPOINT, {"volume": "other"}, "job and volume cannot change: make another Savepoint"),
]


@pytest.mark.parametrize("bad", CHANGES, ids=str)
def test_what_belongs_to_data_that_are_there_cannot_change(
    api: Api, namespace: str, bad: Bad
) -> None:
    api.create(namespace, "kept", LEAST[bad.kind], bad.kind)
    answer = refused(lambda: api.change(namespace, "kept", {"spec": bad.change}, bad.kind))
    assert answer.status == 422
    assert bad.says in answer.message


def test_an_optional_part_of_an_address_cannot_be_taken_away(api: Api, namespace: str) -> None:
    api.create(namespace, "job", FULL[JOB], JOB)
    change = {"spec": {"checkpoint": {"path": None}}}
    assert "cannot change" in refused(lambda: api.change(namespace, "job", change)).message
    spec = {**FULL[VOLUME], "reclaimPolicy": "Retain"}
    api.create(namespace, "volume", spec, VOLUME)
    gone = {"spec": {"prefix": None}}
    assert "cannot change" in refused(lambda: api.change(namespace, "volume", gone, VOLUME)).message


def test_a_stateless_upgrade_may_change_what_belongs_to_the_checkpoint(
    api: Api, namespace: str
) -> None:
    api.create(namespace, "job", LEAST_JOB)
    change = {"upgradeMode": "stateless", "epochs": {"delivery": "at-least-once"}}
    changed = api.change(namespace, "job", {"spec": change})
    assert changed["spec"]["epochs"]["delivery"] == "at-least-once"
    assert changed["metadata"]["generation"] == 2


@by_name
def test_a_full_example_is_accepted_as_it_is(api: Api, namespace: str, kind: Kind) -> None:
    assert api.create(namespace, "full", FULL[kind], kind)["spec"] == FULL[kind]


def test_a_batch_job_on_a_schedule_is_accepted(api: Api, namespace: str) -> None:
    made = api.create(namespace, "batch", BATCH_JOB)
    assert made["spec"]["schedule"] == BATCH_JOB["schedule"]


@by_name
def test_what_is_left_out_is_filled_in_as_the_operator_reads_it(
    api: Api, namespace: str, kind: Kind
) -> None:
    """What the server stores says the same as what the operator makes of the least spec."""
    stored = api.create(namespace, "least", LEAST[kind], kind)["spec"]
    assert parse(kind.spec, stored, "stored") == parse(kind.spec, LEAST[kind], "least")
    if kind is JOB:
        assert stored["epochs"]["interval"] == "10 seconds"
        assert stored["restart"]["strategy"] == "exponential-delay"
        assert stored["executor"]["instances"] == 1
        assert stored["graceS"] == 180
    if kind is VOLUME:
        assert stored["retention"] == {"savepoints": 0, "epochs": 100}


@by_name
def test_a_status_is_written_by_its_subresource_only(api: Api, namespace: str, kind: Kind) -> None:
    api.create(namespace, "one", LEAST[kind], kind)
    api.change(namespace, "one", {"status": {"phase": "Failed"}}, kind)
    assert "status" not in api.get(namespace, "one", kind)
    written = api.change_status(namespace, "one", {"phase": "Failed"}, kind)
    assert written["status"]["phase"] == "Failed"
    assert written["metadata"]["generation"] == 1


@by_name
def test_a_status_has_only_phases_that_there_are(api: Api, namespace: str, kind: Kind) -> None:
    api.create(namespace, "one", LEAST[kind], kind)
    answer = refused(lambda: api.change_status(namespace, "one", {"phase": "Fine"}, kind))
    assert "status.phase: Unsupported value" in answer.message


COLUMNS: dict[Kind, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    JOB: (
        {
            "phase": "Running",
            "attempt": 3,
            "lastEpoch": 7,
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
            "taken": [{"location": "s3://b/p", "epoch": 5, "takenTime": "2026-01-31T12:00:00Z"}],
        },
        {"Job": "orders", "Phase": "Ready", "Epoch": 5, "Location": "s3://b/p"},
        ["Name", "Job", "Phase", "Epoch", "Age"],
    ),
}


@by_name
def test_kubectl_get_shows_what_matters(api: Api, namespace: str, kind: Kind) -> None:
    status, shown, columns = COLUMNS[kind]
    api.create(namespace, "one", LEAST[kind], kind)
    api.change_status(namespace, "one", status, kind)
    table = api.table(namespace, kind)
    heads = table["columnDefinitions"]
    cells = dict(zip([head["name"] for head in heads], table["rows"][0]["cells"], strict=True))
    assert {name: cells[name] for name in shown} == shown
    assert [head["name"] for head in heads if head["priority"] == 0] == columns


def test_kinds_have_short_names_and_a_category(api: Api) -> None:
    served = api.ask("GET", "/apis/sluicegate.dev/v1alpha1")["resources"]
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
    """`kubectl explain` has a text for what a user writes."""
    schemas = api.ask("GET", "/openapi/v3/apis/sluicegate.dev/v1alpha1")["components"]["schemas"]
    spec = schemas[f"dev.sluicegate.v1alpha1.{kind.name}"]["properties"]["spec"]["properties"]
    assert all(field.get("description") for field in spec.values())


def test_a_name_is_no_longer_than_its_pods_names_allow(api: Api, namespace: str) -> None:
    api.create(namespace, "j" * 52, LEAST_JOB)
    answer = refused(lambda: api.create(namespace, "j" * 53, LEAST_JOB))
    assert answer.status == 422
    assert "52" in answer.message
