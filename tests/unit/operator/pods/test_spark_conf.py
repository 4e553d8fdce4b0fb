"""Spark's settings, the executors' template, and names: what a job may set, and what it may not."""

import json
from typing import Any

import pytest
import yaml

from sluicegate.spark.session import RUNTIME_SETTINGS
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.api.fields import SPEC_REJECTED
from sluicegate_operator.api.spark_properties import FIXED, FORBIDDEN
from sluicegate_operator.api.streaming_job_settings import (
    ExecutorSettings,
    PodSettings,
    Tracing,
)
from sluicegate_operator.pods import spark_conf
from sluicegate_operator.pods.driver import validate
from sluicegate_operator.pods.spark_conf import validate_conf
from tests.unit.operator.builders import spec
from tests.unit.operator.pods.pod_builders import ALONE, VOLUME, conf_of, env_of, pod_of

TEMPLATE = "sluicegate.dev/executor-template"


def executor_of(**changes: Any) -> dict[str, Any]:
    """Return the template that Spark reads, from the driver's pod."""
    volume = changes.pop("volume", VOLUME)
    found = json.loads(pod_of(spec(**changes), volume)["metadata"]["annotations"][TEMPLATE])
    assert isinstance(found, dict)
    return found


# --- sparkConf ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(FORBIDDEN))
def test_forbidden_key_is_rejected(key: str) -> None:
    found = validate_conf(spec(spark_conf={"spark.ok": "1", key: "x"}))
    assert found is not None
    assert found.what == f"sparkConf[{key}] cannot be set: {FORBIDDEN[key]}"
    assert found.data == SPEC_REJECTED


@pytest.mark.parametrize(
    "key",
    [
        "spark.authenticate",
        "spark.authenticate.secret",
        "spark.network.crypto.enabled",
        "spark.network.crypto.cipher",
        "spark.network.sasl.serverAlwaysEncrypt",
        "spark.io.encryption.enabled",
        "spark.kubernetes.executor.volumes.hostPath.node.mount.path",
        "spark.kubernetes.authenticate.oauthTokenFile",
    ],
)
def test_key_that_would_weaken_the_pods_is_rejected(key: str) -> None:
    error = validate_conf(spec(spark_conf={key: "false"}))
    assert error is not None
    assert error.what.startswith(f"sparkConf[{key}] cannot be set: ")
    assert conf_of(pod_of(spec(spark_conf={key: "false"}))).get(key) != "false"


def test_driver_and_executors_authenticate_and_encrypt() -> None:
    conf = conf_of(pod_of(spec(executor=ExecutorSettings(instances=1))))
    for key in (
        "spark.authenticate",
        "spark.network.crypto.enabled",
        "spark.io.encryption.enabled",
    ):
        assert conf[key] == "true"
    # Spark creates the secret itself: none may be in a pod that the operator writes
    assert not [key for key in conf if "secret" in key.lower()]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.dynamicAllocation.enabled", "true"),
        ("spark.speculation", "TRUE"),
        ("spark.kubernetes.allocation.pods.allocator", "statefulset"),
    ],
)
def test_other_value_of_a_fixed_key_is_rejected(key: str, value: str) -> None:
    found = validate_conf(spec(spark_conf={key: value}))
    assert found is not None
    assert f"sparkConf[{key}] is {value!r} but must be {FIXED[key][0]!r}" in found.what


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"spark.dynamicAllocation.enabled": " False "},
        {"spark.sql.shuffle.partitions": "8"},
        {"spark.kubernetes.executor.disableConfigMap": "false"},
        {"spark.executor.extraJavaOptions": "-XX:+UseG1GC"},
    ],
)
def test_other_settings_are_accepted(given: dict[str, str]) -> None:
    assert validate_conf(spec(spark_conf=given)) is None


def test_settings_that_exactly_once_needs_match_the_library() -> None:
    """The operator does not import the library's Spark code, so this test compares the two lists."""
    protocol = [
        key for key in FORBIDDEN if key.startswith("spark.sql.s") and "checkpoint" not in key
    ]
    assert set(protocol) - {"spark.sql.warehouse.dir"} <= RUNTIME_SETTINGS.keys()
    assert "spark.sql.streaming.stateStore.checkpointFormatVersion" in RUNTIME_SETTINGS


def test_user_settings_reach_a_driver_without_executors() -> None:
    conf = conf_of(pod_of(spec(executor=ALONE, spark_conf={"spark.sql.shuffle.partitions": "8"})))
    assert conf == {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": "file:/var/tmp/warehouse",
    }


def test_rejected_setting_never_reaches_a_driver() -> None:
    given = {"spark.master": "local", "spark.speculation": "true", "spark.x": "1"}
    conf = conf_of(pod_of(spec(executor=ALONE, spark_conf=given)))
    assert "spark.master" not in conf
    assert conf["spark.speculation"] == "false"


def test_dollar_sign_in_a_setting_is_escaped() -> None:
    """Kubernetes turns `$$` into a dollar sign, and keeps `$(NAME)` only if NAME is not defined."""
    given = {"spark.redaction.regex": "$(SLUICEGATE_POD_IP)$"}
    conf = conf_of(pod_of(spec(spark_conf=given)))
    assert conf["spark.redaction.regex"] == "$$(SLUICEGATE_POD_IP)$$"


# --- executors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.executor.instances", "4"),
        ("spark.executor.cores", "2"),
        ("spark.executor.memory", "2048m"),
        ("spark.executor.memoryOverhead", "819m"),
        ("spark.driver.host", "$(SLUICEGATE_POD_IP)"),
        ("spark.driver.bindAddress", "$(SLUICEGATE_POD_IP)"),
        ("spark.kubernetes.namespace", "shop"),
        ("spark.kubernetes.driver.pod.name", "clicks-3-driver"),
        ("spark.kubernetes.executor.podNamePrefix", "clicks-3"),
        ("spark.kubernetes.executor.podTemplateFile", "/etc/sluicegate/executor.json"),
        ("spark.kubernetes.executor.podTemplateContainerName", "executor"),
        ("spark.kubernetes.container.image", "jobs:1"),
        ("spark.kubernetes.container.image.pullPolicy", "IfNotPresent"),
        ("spark.kubernetes.container.image.pullSecrets", "a,b"),
    ],
)
def test_spark_creates_executors_with_setting(key: str, value: str) -> None:
    executor = ExecutorSettings(instances=4, cores=2, memory="2g")
    conf = conf_of(pod_of(spec(executor=executor, image_pull_secrets=("a", "b"))))
    assert conf[key] == value


@pytest.mark.parametrize("key", sorted(spark_conf._EXECUTOR_DEFAULTS))
def test_default_can_be_changed(key: str) -> None:
    assert conf_of(pod_of(spec(spark_conf={key: "other"})))[key] == "other"


def test_driver_without_executors_has_no_executor_template() -> None:
    pod = pod_of(spec(executor=ALONE))
    assert TEMPLATE not in pod["metadata"]["annotations"]
    assert {v["name"] for v in pod["spec"]["volumes"]} == {"tmp", "work"}


def test_executor_template_is_mounted_where_spark_looks_for_it() -> None:
    pod = pod_of(spec())
    (volume,) = (v for v in pod["spec"]["volumes"] if "downwardAPI" in v)
    (item,) = volume["downwardAPI"]["items"]
    (mount,) = (
        m for m in pod["spec"]["containers"][0]["volumeMounts"] if m["name"] == volume["name"]
    )
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{TEMPLATE}']"
    variables = conf_of(pod)["spark.kubernetes.executor.podTemplateFile"]
    assert f"{mount['mountPath']}/{item['path']}" == variables


def test_executor_template_is_valid_yaml() -> None:
    """Spark parses it as YAML."""
    text = pod_of(spec())["metadata"]["annotations"][TEMPLATE]
    assert yaml.safe_load(text) == executor_of()
    assert (executor_of()["apiVersion"], executor_of()["kind"]) == ("v1", "Pod")


def test_executors_have_labels_of_the_job() -> None:
    labels = executor_of()["metadata"]["labels"]
    assert labels["sluicegate.dev/job"] == "clicks"
    assert labels["sluicegate.dev/role"] == "executor"
    assert labels["sluicegate.dev/attempt"] == "3"


def test_executors_have_no_finalizer() -> None:
    """The driver owns them, and they are deleted with it."""
    assert not {"finalizers", "ownerReferences", "name"} & executor_of()["metadata"].keys()


def test_executors_receive_variables_of_store_and_collector() -> None:
    variables = env_of(executor_of(tracing=Tracing(endpoint="http://collector:4318")), "executor")
    assert variables == {
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://s3:7070",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": {"secretKeyRef": {"name": "keys", "key": "accessKeyId"}},
        "AWS_SECRET_ACCESS_KEY": {"secretKeyRef": {"name": "keys", "key": "secretAccessKey"}},
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    }


def test_executors_have_the_account_of_the_driver_but_no_token() -> None:
    """A store may grant access to the account, but executors never call the API server."""
    conf = executor_of(volume=CheckpointVolumeSpec(bucket="streams"))["spec"]
    assert conf["serviceAccountName"] == "sluicegate-driver"
    assert conf["automountServiceAccountToken"] is False


def test_working_directory_of_executors_is_writable() -> None:
    """Spark copies jars into its working directory."""
    (container,) = executor_of()["spec"]["containers"]
    assert container["workingDir"] in {m["mountPath"] for m in container["volumeMounts"]}


def test_executor_template_of_the_user_is_merged() -> None:
    template = {
        "metadata": {"labels": {"sluicegate.dev/job": "other", "team": "a"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [
                {
                    "name": "executor",
                    "command": ["/entry"],
                    "env": [{"name": "AWS_REGION", "value": "x"}, {"name": "MINE", "value": "1"}],
                }
            ],
        },
    }
    conf = executor_of(executor=ExecutorSettings(template=template))
    (container,) = conf["spec"]["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert conf["metadata"]["labels"]["team"] == "a"
    assert conf["metadata"]["labels"]["sluicegate.dev/job"] == "clicks"
    assert conf["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert container["command"] == ["/entry"]
    assert (variables["AWS_REGION"], variables["MINE"]) == ("us-east-1", "1")


def test_driver_template_does_not_apply_to_executors() -> None:
    driver = PodSettings(template={"spec": {"nodeSelector": {"disk": "ssd"}}})
    assert "nodeSelector" not in executor_of(driver=driver)["spec"]


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "fits"), [(1, True), (52, True), (53, False)])
def test_name_must_fit_into_labels(
    length: int,
    fits: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    found = validate("x" * length, spec())
    assert (found is None) is fits


def test_crd_limits_the_length_of_the_name() -> None:
    version = STREAMING_JOB.definition()["spec"]["versions"][0]
    rule, *_ = version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    assert rule["rule"] == "size(self.metadata.name) <= 52"


def test_event_logs_are_on_the_volume_unless_the_job_names_a_folder() -> None:
    on = {"spark.eventLog.enabled": "true"}
    assert conf_of(pod_of(spec(spark_conf=on)))["spark.eventLog.dir"].endswith("/spark-events")
    given = {**on, "spark.eventLog.dir": "s3://logs/team"}
    assert conf_of(pod_of(spec(spark_conf=given)))["spark.eventLog.dir"] == "s3://logs/team"
    assert "spark.eventLog.dir" not in conf_of(pod_of(spec()))
