"""The driver's pod: its contract with `sluicegate.driver` and with the operator's caches."""

import dataclasses
import json
from typing import Any

import pytest

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api import labels as api_labels
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import checkpoint_address
from sluicegate_operator.api.streaming_job_settings import (
    CheckpointSettings,
    ExecutorSettings,
    PodSettings,
    Tracing,
)
from sluicegate_operator.controllers.decode import driver_pod_of
from sluicegate_operator.pods.spark_conf import mib, total_mib
from tests.unit.operator.builders import spec
from tests.unit.operator.pods.pod_builders import ALONE, VOLUME, container_of, env_of, pod_of

AMAZON = CheckpointVolumeSpec(bucket="streams", region="eu-west-1")


def test_name_has_job_and_attempt() -> None:
    """Creating the pod of an attempt twice is therefore a conflict."""
    assert pod_of(spec())["metadata"]["name"] == "clicks-3-driver"
    assert pod_of(spec())["metadata"]["namespace"] == "shop"


def test_labels_identify_job_and_attempt() -> None:
    labels = pod_of(spec())["metadata"]["labels"]
    assert {k: v for k, v in labels.items() if k.startswith("sluicegate.dev/")} == {
        "sluicegate.dev/job": "clicks",
        "sluicegate.dev/job-uid": "u-job",
        "sluicegate.dev/role": "driver",
        "sluicegate.dev/attempt": "3",
        "sluicegate.dev/mode": "Run",
        "sluicegate.dev/checkpoint": "2",
    }


def test_a_standby_is_labelled_waits_and_prefers_another_node() -> None:
    pod = pod_of(spec(executor=ALONE), standby=True)
    assert pod["metadata"]["labels"]["sluicegate.dev/standby"] == "true"
    assert env_of(pod)["SLUICEGATE_STANDBY"] == "true"
    affinity = pod["spec"]["affinity"]["podAntiAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = preferred["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels == {"sluicegate.dev/job-uid": "u-job", "sluicegate.dev/role": "driver"}


def test_a_driver_that_is_no_standby_has_nothing_of_one() -> None:
    pod = pod_of(spec(executor=ALONE))
    assert "SLUICEGATE_STANDBY" not in env_of(pod)
    assert "affinity" not in pod["spec"]


def test_spec_hash_is_an_annotation() -> None:
    assert pod_of(spec())["metadata"]["annotations"]["sluicegate.dev/spec-hash"] == "abc"


def test_pod_has_finalizer_and_owner() -> None:
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


def test_container_is_never_restarted_in_place() -> None:
    assert pod_of(spec())["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(("grace_s", "seconds"), [(180.0, 180), (1.5, 2)])
def test_grace_period_is_rounded_up_to_seconds(grace_s: float, seconds: int) -> None:
    assert (
        pod_of(spec(termination_grace_period_s=grace_s))["spec"]["terminationGracePeriodSeconds"]
        == seconds
    )


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
def test_command_runs_the_main_program_of_the_user(
    changes: dict[str, Any], command: list[str]
) -> None:
    container = container_of(pod_of(spec(**changes)))
    assert container["command"] == ["python", "-m", "sluicegate.driver", *command]
    assert "args" not in container


def test_argument_may_refer_to_a_variable() -> None:
    """As in any container; a literal dollar sign is doubled."""
    container = container_of(pod_of(spec(arguments=("$(BROKER)", "$$x"))))
    assert container["command"][-2:] == ["$(BROKER)", "$$x"]


def request_of(resource: str, divisor: str) -> dict[str, object]:
    """Return the source of a variable with a request of the driver's container."""
    field = {"containerName": "driver", "resource": f"requests.{resource}", "divisor": divisor}
    return {"resourceFieldRef": field}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLUICEGATE_JOB", "shop/clicks"),
        ("SLUICEGATE_ATTEMPT", "3"),
        ("SLUICEGATE_MODE", "run"),
        ("SLUICEGATE_CHECKPOINT", "s3://streams/team/clicks/2"),
        ("SLUICEGATE_NEWEST_CHECKPOINT", "2"),
        ("SLUICEGATE_EPOCHS", "{}"),
        ("SLUICEGATE_PROGRESS_INTERVAL", "60"),
        ("SLUICEGATE_TERMINATION_FILE", "/dev/termination-log"),
        ("SLUICEGATE_DRIVER_MEMORY", "1024m"),
        ("SLUICEGATE_POD_NAME", {"fieldRef": {"fieldPath": "metadata.name"}}),
        ("SLUICEGATE_POD_NAMESPACE", {"fieldRef": {"fieldPath": "metadata.namespace"}}),
        ("SLUICEGATE_POD_UID", {"fieldRef": {"fieldPath": "metadata.uid"}}),
        ("SLUICEGATE_POD_IP", {"fieldRef": {"fieldPath": "status.podIP"}}),
        ("SLUICEGATE_POD_CPU", request_of("cpu", "1m")),
        ("SLUICEGATE_POD_MEMORY", request_of("memory", "1Mi")),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", "http://s3:7070"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", {"secretKeyRef": {"name": "keys", "key": "accessKeyId"}}),
        ("AWS_SECRET_ACCESS_KEY", {"secretKeyRef": {"name": "keys", "key": "secretAccessKey"}}),
    ],
)
def test_driver_receives_variable(name: str, value: object) -> None:
    assert env_of(pod_of(spec()))[name] == value


@pytest.mark.parametrize(
    ("deadline_s", "interval_s"), [(600.0, 60), (0.0, 60), (120.0, 30), (30.0, 7), (1.0, 1)]
)
def test_four_reports_of_a_driver_fit_in_its_progress_deadline(
    deadline_s: float, interval_s: int
) -> None:
    """The operator reads the interval of a running driver from its pod."""
    made = pod_of(spec(progress_deadline_s=deadline_s))
    assert env_of(made)["SLUICEGATE_PROGRESS_INTERVAL"] == str(interval_s)
    body = {**made, "metadata": {**made["metadata"], "uid": "u-1"}}
    assert driver_pod_of(body).pod.progress_interval_s == interval_s


def test_unset_fields_add_no_variables() -> None:
    variables = env_of(pod_of(spec(), AMAZON))
    absent = {
        "AWS_ALLOW_HTTP",
        "AWS_ACCESS_KEY_ID",
        "AWS_ENDPOINT_URL",
        "AWS_SECRET_ACCESS_KEY",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "SLUICEGATE_DEAD_LETTER_TOPIC",
        "SLUICEGATE_RESTORE_FROM",
    }
    assert not absent & variables.keys()
    assert variables["AWS_REGION"] == "eu-west-1"


def test_driver_receives_tracing_and_dead_letter_topic() -> None:
    job_spec = spec(tracing=Tracing(endpoint="http://collector:4318"), dead_letter_topic="dead")
    variables = env_of(pod_of(job_spec))
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    assert variables["SLUICEGATE_DEAD_LETTER_TOPIC"] == "dead"


def test_epoch_settings_are_passed_by_their_library_names() -> None:
    epochs = EpochSettings(interval="2 seconds", min_pause_ms=100)
    variables = json.loads(env_of(pod_of(spec(epochs=epochs)))["SLUICEGATE_EPOCHS"])
    assert variables == {"interval": "2 seconds", "min_pause_ms": 100}


def test_a_metrics_port_has_a_name_that_a_pod_monitor_can_select() -> None:
    container = container_of(pod_of(spec(epochs=EpochSettings(metrics_port=9464))))
    assert container["ports"] == [{"name": "metrics", "containerPort": 9464}]
    assert "ports" not in container_of(pod_of(spec()))


def test_batch_trigger_is_passed_as_an_interval() -> None:
    variables = json.loads(env_of(pod_of(spec(trigger="AvailableNow")))["SLUICEGATE_EPOCHS"])
    assert variables == {"interval": "available-now"}


def test_driver_restores_a_savepoint() -> None:
    variables = env_of(pod_of(spec(), restore_from="s3://streams/sp/1"))
    assert variables["SLUICEGATE_RESTORE_FROM"] == "s3://streams/sp/1"


def test_apply_only_driver_restores_nothing() -> None:
    """An empty checkpoint has nothing to apply, and must not be bound to a savepoint's sinks."""
    variables = env_of(pod_of(spec(), restore_from="s3://streams/sp/1", mode="ApplyOnly"))
    assert "SLUICEGATE_RESTORE_FROM" not in variables


@pytest.mark.parametrize(
    ("executor", "mode", "master"),
    [
        (ALONE, "Run", "local[2]"),
        (ExecutorSettings(instances=3), "Run", "k8s://https://kubernetes.default.svc"),
        (ExecutorSettings(instances=3), "ApplyOnly", "local[2]"),
    ],
)
def test_master_depends_on_executors_and_mode(
    executor: ExecutorSettings, mode: str, master: str
) -> None:
    job_spec = spec(driver=PodSettings(cores=2), executor=executor)
    assert env_of(pod_of(job_spec, mode=mode))["SLUICEGATE_MASTER"] == master


@pytest.mark.parametrize(
    ("prefix", "path", "address"),
    [
        ("", "", "s3://streams/clicks/2"),
        ("team/a", "", "s3://streams/team/a/clicks/2"),
        ("team/", "/x/y/", "s3://streams/team/x/y/2"),
    ],
)
def test_checkpoint_address(prefix: str, path: str, address: str) -> None:
    job_spec = spec(checkpoint=CheckpointSettings(volume="store", path=path))
    volume = CheckpointVolumeSpec(bucket="streams", prefix=prefix)
    assert checkpoint_address(volume, "clicks", job_spec, 2) == address


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1g", 1024), ("512m", 512), ("2G", 2048), ("1t", 1 << 20), ("1500k", 2), ("700", 700)],
)
def test_size_is_parsed_like_spark_does(size: str, expected: int) -> None:
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
def test_python_has_memory_outside_the_heap(pod: PodSettings, expected: int) -> None:
    """Spark's rule for jobs that do not run on the JVM alone: 0.4 of the heap, at least 384 MiB."""
    assert total_mib(pod) == expected


def test_memory_is_limited_and_cpu_is_not() -> None:
    job_spec = spec(driver=PodSettings(cores=3, memory="1g"))
    assert container_of(pod_of(job_spec))["resources"] == {
        "requests": {"cpu": "3", "memory": "1433Mi"},
        "limits": {"memory": "1433Mi"},
    }


def test_termination_message_has_the_reason() -> None:
    container = container_of(pod_of(spec()))
    assert (
        container["terminationMessagePath"] == env_of(pod_of(spec()))["SLUICEGATE_TERMINATION_FILE"]
    )
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_pod_is_allowed_in_a_restricted_namespace() -> None:
    """Every field that kubernetes.io/docs/concepts/security/pod-security-standards requires."""
    pod = pod_of(spec())
    inside = container_of(pod)["securityContext"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}
    allowed = {"emptyDir", "downwardAPI"}
    assert all(set(volume) - {"name"} <= allowed for volume in pod["spec"]["volumes"])


def test_ca_certificate_is_mounted_without_its_key() -> None:
    volume = dataclasses.replace(VOLUME, authority_secret="store-tls")
    driver = pod_of(spec(executor=ExecutorSettings(instances=1)), volume)
    executor = json.loads(driver["metadata"]["annotations"][api_labels.EXECUTOR_TEMPLATE])
    for pod, container in ((driver, "driver"), (executor, "executor")):
        (found,) = (v["secret"] for v in pod["spec"]["volumes"] if "secret" in v)
        assert found == {"secretName": "store-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        (mounted,) = (
            m
            for m in container_of(pod, container)["volumeMounts"]
            if m["name"] == "sluicegate-authority"
        )
        assert env_of(pod, container)["SSL_CERT_FILE"] == f"{mounted['mountPath']}/ca.crt"


def test_folders_that_spark_writes_to_are_volumes() -> None:
    pod = pod_of(spec(executor=ALONE))
    mounts = {m["mountPath"]: m["name"] for m in container_of(pod)["volumeMounts"]}
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    assert container_of(pod)["securityContext"]["readOnlyRootFilesystem"] is True
    assert all("emptyDir" in volumes[mounts[path]] for path in ("/tmp", "/var/tmp"))
    assert env_of(pod)["SPARK_LOCAL_DIRS"] == "/var/tmp"


@pytest.mark.parametrize(("given", "account"), [("", "sluicegate-driver"), ("mine", "mine")])
def test_service_account_may_report_progress(given: str, account: str) -> None:
    pod = pod_of(spec(service_account=given))["spec"]
    assert pod["serviceAccountName"] == account
    assert pod["automountServiceAccountToken"] is True


def test_image_pull_settings_come_from_the_job() -> None:
    pod = pod_of(spec(image_pull_policy="Always", image_pull_secrets=("a", "b")))
    assert container_of(pod)["image"] == "jobs:1"
    assert container_of(pod)["imagePullPolicy"] == "Always"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_autoscaler_does_not_evict_the_driver() -> None:
    annotations = pod_of(spec())["metadata"]["annotations"]
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_manifest_is_json() -> None:
    container = pod_of(spec(), VOLUME)
    assert json.loads(json.dumps(container)) == container
