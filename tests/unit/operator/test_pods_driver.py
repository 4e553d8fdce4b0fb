"""The driver's pod: what the contract with `sluicegate.pod` and with the operator's watch says."""

import dataclasses
import json
from typing import Any

import pytest

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.pods.memory import mib, total_mib
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.addresses import checkpoint_address
from sluicegate_operator.resources.job import (
    CheckpointSettings,
    ExecutorSettings,
    PodSettings,
    Tracing,
)
from sluicegate_operator.resources.volume import CheckpointVolumeSpec

from .made import spec
from .manifests import ALONE, VOLUME, container_of, env_of, pod_of

AMAZON = CheckpointVolumeSpec(bucket="streams", region="eu-west-1")


def test_the_name_is_of_job_and_attempt() -> None:
    """So that to create an attempt's pod twice is a conflict."""
    assert pod_of(spec())["metadata"]["name"] == "clicks-3-driver"
    assert pod_of(spec())["metadata"]["namespace"] == "shop"


def test_the_labels_say_whose_it_is_and_which() -> None:
    labels = pod_of(spec())["metadata"]["labels"]
    assert {k: v for k, v in labels.items() if k.startswith("sluicegate.dev/")} == {
        "sluicegate.dev/job": "clicks",
        "sluicegate.dev/job-uid": "u-job",
        "sluicegate.dev/role": "driver",
        "sluicegate.dev/attempt": "3",
        "sluicegate.dev/purpose": "run",
        "sluicegate.dev/checkpoint": "2",
    }


def test_the_digest_of_the_spec_is_an_annotation() -> None:
    assert pod_of(spec())["metadata"]["annotations"]["sluicegate.dev/spec-hash"] == "abc"


def test_it_is_held_and_owned() -> None:
    metadata = pod_of(spec())["metadata"]
    assert metadata["finalizers"] == ["sluicegate.dev/driver"]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "sluicegate.dev/v1alpha1",
            "kind": "StreamingJob",
            "name": "clicks",
            "uid": "u-job",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


def test_it_is_never_restarted_in_place() -> None:
    assert pod_of(spec())["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(("grace_s", "seconds"), [(180.0, 180), (1.5, 2)])
def test_it_has_time_to_end_its_epoch(grace_s: float, seconds: int) -> None:
    assert pod_of(spec(grace_s=grace_s))["spec"]["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"main_module": "clicks"}, ["--module", "clicks", "--"]),
        ({"main_module": "", "main_file": "/app/a.py"}, ["--file", "/app/a.py", "--"]),
        (
            {"main_module": "sluicegate.cli", "arguments": ("run", "ip_count", "--once")},
            ["--module", "sluicegate.cli", "--", "run", "ip_count", "--once"],
        ),
    ],
)
def test_the_command_runs_the_users_main(changes: dict[str, Any], command: list[str]) -> None:
    made = container_of(pod_of(spec(**changes)))
    assert made["command"] == ["python", "-m", "sluicegate.pod", *command]
    assert "args" not in made


def test_an_argument_may_name_a_variable() -> None:
    """As of any container; a text with a dollar is written with two."""
    made = container_of(pod_of(spec(arguments=("$(BROKER)", "$$x"))))
    assert made["command"][-2:] == ["$(BROKER)", "$$x"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLUICEGATE_JOB", "shop/clicks"),
        ("SLUICEGATE_ATTEMPT", "3"),
        ("SLUICEGATE_PURPOSE", "run"),
        ("SLUICEGATE_CHECKPOINT", "s3://streams/team/clicks/2"),
        ("SLUICEGATE_NEWEST_CHECKPOINT", "2"),
        ("SLUICEGATE_EPOCHS", "{}"),
        ("SLUICEGATE_OUTCOME", "/dev/termination-log"),
        ("SLUICEGATE_DRIVER_MEMORY", "1024m"),
        ("SLUICEGATE_POD_NAME", {"fieldRef": {"fieldPath": "metadata.name"}}),
        ("SLUICEGATE_POD_NAMESPACE", {"fieldRef": {"fieldPath": "metadata.namespace"}}),
        ("SLUICEGATE_POD_UID", {"fieldRef": {"fieldPath": "metadata.uid"}}),
        ("SLUICEGATE_POD_IP", {"fieldRef": {"fieldPath": "status.podIP"}}),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", "http://s3:7070"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", {"secretKeyRef": {"name": "keys", "key": "accessKeyId"}}),
        ("AWS_SECRET_ACCESS_KEY", {"secretKeyRef": {"name": "keys", "key": "secretAccessKey"}}),
    ],
)
def test_the_driver_is_told(name: str, value: object) -> None:
    assert env_of(pod_of(spec()))[name] == value


def test_only_what_is_given_is_told() -> None:
    told = env_of(pod_of(spec(), AMAZON))
    absent = {
        "AWS_ALLOW_HTTP",
        "AWS_ACCESS_KEY_ID",
        "AWS_ENDPOINT_URL",
        "AWS_SECRET_ACCESS_KEY",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "SLUICEGATE_DEAD_LETTER_TOPIC",
        "SLUICEGATE_RESTORE_FROM",
    }
    assert not absent & told.keys()
    assert told["AWS_REGION"] == "eu-west-1"


def test_tracing_and_dead_letters_are_told() -> None:
    wanted = spec(tracing=Tracing(endpoint="http://collector:4318"), dead_letter_topic="dead")
    told = env_of(pod_of(wanted))
    assert told["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    assert told["SLUICEGATE_DEAD_LETTER_TOPIC"] == "dead"


def test_settings_of_epochs_that_are_not_default_are_told_by_their_names_in_the_library() -> None:
    epochs = EpochSettings(interval="2 seconds", min_pause_ms=0)
    told = json.loads(env_of(pod_of(spec(epochs=epochs)))["SLUICEGATE_EPOCHS"])
    assert told == {"interval": "2 seconds", "min_pause_ms": 0}


def test_a_batch_is_told_as_an_interval() -> None:
    told = json.loads(env_of(pod_of(spec(trigger="availableNow")))["SLUICEGATE_EPOCHS"])
    assert told == {"interval": "available-now"}


def test_a_savepoint_is_restored_by_a_driver_that_runs() -> None:
    told = env_of(pod_of(spec(), restore_from="s3://streams/sp/1"))
    assert told["SLUICEGATE_RESTORE_FROM"] == "s3://streams/sp/1"


def test_a_driver_that_only_finishes_restores_nothing() -> None:
    """An empty checkpoint has nothing to finish, and must not become one of a savepoint's sinks."""
    told = env_of(pod_of(spec(), restore_from="s3://streams/sp/1", purpose="finish"))
    assert "SLUICEGATE_RESTORE_FROM" not in told


@pytest.mark.parametrize(
    ("executor", "purpose", "master"),
    [
        (ALONE, "run", "local[2]"),
        (ExecutorSettings(instances=3), "run", "k8s://https://kubernetes.default.svc"),
        (ExecutorSettings(instances=3), "finish", "local[2]"),
    ],
)
def test_the_master_is_by_executors_and_purpose(
    executor: ExecutorSettings, purpose: str, master: str
) -> None:
    wanted = spec(driver=PodSettings(cores=2), executor=executor)
    assert env_of(pod_of(wanted, purpose=purpose))["SLUICEGATE_MASTER"] == master


@pytest.mark.parametrize(
    ("prefix", "path", "address"),
    [
        ("", "", "s3://streams/clicks/2"),
        ("team/a", "", "s3://streams/team/a/clicks/2"),
        ("team/", "/x/y/", "s3://streams/team/x/y/2"),
    ],
)
def test_the_address_of_a_checkpoint(prefix: str, path: str, address: str) -> None:
    wanted = spec(checkpoint=CheckpointSettings(volume="store", path=path))
    volume = CheckpointVolumeSpec(bucket="streams", prefix=prefix)
    assert checkpoint_address(volume, "clicks", wanted, 2) == address


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1g", 1024), ("512m", 512), ("2G", 2048), ("1t", 1 << 20), ("1500k", 2), ("700", 700)],
)
def test_a_size_is_read_as_spark_reads_it(size: str, expected: int) -> None:
    assert mib(size) == expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (PodSettings(memory="512m"), 512 + 384),
        (PodSettings(memory="1g"), 1024 + 409),
        (PodSettings(memory="10g"), 10240 + 4096),
        (PodSettings(memory="1g", memory_overhead="2g"), 1024 + 2048),
    ],
)
def test_python_has_memory_beside_the_heap(pod: PodSettings, expected: int) -> None:
    """Spark's rule for jobs that are not on the JVM: 0.4 of the heap, at least 384 MiB."""
    assert total_mib(pod) == expected


def test_memory_is_limited_and_cpu_is_not() -> None:
    wanted = spec(driver=PodSettings(cores=3, memory="1g"))
    assert container_of(pod_of(wanted))["resources"] == {
        "requests": {"cpu": "3", "memory": "1433Mi"},
        "limits": {"memory": "1433Mi"},
    }


def test_why_it_ended_is_in_its_termination_message() -> None:
    made = container_of(pod_of(spec()))
    assert made["terminationMessagePath"] == env_of(pod_of(spec()))["SLUICEGATE_OUTCOME"]
    assert made["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_it_is_allowed_in_a_restricted_namespace() -> None:
    """Each field that kubernetes.io/docs/concepts/security/pod-security-standards asks for."""
    pod = pod_of(spec())
    inside = container_of(pod)["securityContext"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}
    allowed = {"emptyDir", "downwardAPI"}
    assert all(set(volume) - {"name"} <= allowed for volume in pod["spec"]["volumes"])


def test_the_authority_of_the_store_is_mounted_in_driver_and_executors_without_its_key() -> None:
    volume = dataclasses.replace(VOLUME, authority_secret="store-tls")
    driver = pod_of(spec(executor=ExecutorSettings(instances=1)), volume)
    executor = json.loads(driver["metadata"]["annotations"][marks.EXECUTOR_TEMPLATE])
    for pod, container in ((driver, "driver"), (executor, "executor")):
        (found,) = (v["secret"] for v in pod["spec"]["volumes"] if "secret" in v)
        assert found == {"secretName": "store-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        (mounted,) = (
            m
            for m in container_of(pod, container)["volumeMounts"]
            if m["name"] == "sluicegate-authority"
        )
        assert env_of(pod, container)["SSL_CERT_FILE"] == f"{mounted['mountPath']}/ca.crt"


def test_what_spark_writes_to_is_a_volume() -> None:
    pod = pod_of(spec(executor=ALONE))
    mounts = {m["mountPath"]: m["name"] for m in container_of(pod)["volumeMounts"]}
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    assert container_of(pod)["securityContext"]["readOnlyRootFilesystem"] is True
    assert all("emptyDir" in volumes[mounts[path]] for path in ("/tmp", "/var/tmp"))
    assert env_of(pod)["SPARK_LOCAL_DIRS"] == "/var/tmp"


@pytest.mark.parametrize(("given", "account"), [("", "sluicegate-driver"), ("mine", "mine")])
def test_it_runs_as_an_account_that_may_report_progress(given: str, account: str) -> None:
    pod = pod_of(spec(service_account=given))["spec"]
    assert pod["serviceAccountName"] == account
    assert pod["automountServiceAccountToken"] is True


def test_images_are_pulled_as_the_job_says() -> None:
    pod = pod_of(spec(image_pull_policy="Always", image_pull_secrets=("a", "b")))
    assert container_of(pod)["image"] == "jobs:1"
    assert container_of(pod)["imagePullPolicy"] == "Always"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_an_autoscaler_does_not_move_it() -> None:
    annotations = pod_of(spec())["metadata"]["annotations"]
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_a_manifest_is_json() -> None:
    made = pod_of(spec(), VOLUME)
    assert json.loads(json.dumps(made)) == made
