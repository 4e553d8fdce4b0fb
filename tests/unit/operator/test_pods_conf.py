"""Spark's settings, executors, and names: what is given, and what may not be."""

import json
from typing import Any

import pytest
import yaml

from sluicegate.spark.session import RUNTIME_SETTINGS
from sluicegate_operator.pods import conf
from sluicegate_operator.pods.checks import refused
from sluicegate_operator.pods.conf import ONLY, REFUSED, refused_conf
from sluicegate_operator.resources.job import ExecutorSettings, PodSettings, Tracing
from sluicegate_operator.resources.kinds import STREAMING_JOB
from sluicegate_operator.resources.volume import CheckpointVolumeSpec

from .made import spec
from .manifests import ALONE, VOLUME, conf_of, env_of, pod_of

TEMPLATE = "sluicegate.dev/executor-template"


def executor_of(**changes: Any) -> dict[str, Any]:
    """Return the template that Spark reads, out of the driver's pod."""
    volume = changes.pop("volume", VOLUME)
    found = json.loads(pod_of(spec(**changes), volume)["metadata"]["annotations"][TEMPLATE])
    assert isinstance(found, dict)
    return found


# --- sparkConf ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_key_of_the_operators_is_refused(key: str) -> None:
    found = refused_conf(spec(spark_conf={"spark.ok": "1", key: "x"}))
    assert found is not None
    assert found.what == f"sparkConf[{key}] cannot be given: {REFUSED[key]}"
    assert found.data == "a driver that runs is left as it is; none is started"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.dynamicAllocation.enabled", "true"),
        ("spark.speculation", "TRUE"),
        ("spark.kubernetes.allocation.pods.allocator", "statefulset"),
    ],
)
def test_a_value_that_cannot_work_is_refused(key: str, value: str) -> None:
    found = refused_conf(spec(spark_conf={key: value}))
    assert found is not None
    assert f"sparkConf[{key}] is {value!r}; it can only be {ONLY[key][0]!r}" in found.what


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
def test_other_settings_are_the_users(given: dict[str, str]) -> None:
    assert refused_conf(spec(spark_conf=given)) is None


def test_what_exactly_once_rests_on_is_named_as_the_library_names_it() -> None:
    """The operator does not import the library's Spark part: here the two lists meet."""
    protocol = [key for key in REFUSED if key.startswith("spark.sql.s") and "checkpoint" not in key]
    assert set(protocol) - {"spark.sql.warehouse.dir"} <= RUNTIME_SETTINGS.keys()
    assert "spark.sql.streaming.stateStore.checkpointFormatVersion" in RUNTIME_SETTINGS


def test_the_users_settings_reach_a_driver_that_works_alone() -> None:
    made = conf_of(pod_of(spec(executor=ALONE, spark_conf={"spark.sql.shuffle.partitions": "8"})))
    assert made == {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": "file:/var/tmp/warehouse",
    }


def test_a_refused_setting_never_reaches_a_driver() -> None:
    given = {"spark.master": "local", "spark.speculation": "true", "spark.x": "1"}
    made = conf_of(pod_of(spec(executor=ALONE, spark_conf=given)))
    assert "spark.master" not in made
    assert made["spark.speculation"] == "false"


def test_a_dollar_in_a_setting_is_no_reference() -> None:
    """Kubernetes makes `$$` a dollar again, and leaves `$(NAME)` alone only if it knows no NAME."""
    given = {"spark.redaction.regex": "$(SLUICEGATE_POD_IP)$"}
    made = conf_of(pod_of(spec(spark_conf=given)))
    assert made["spark.redaction.regex"] == "$$(SLUICEGATE_POD_IP)$$"


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
def test_spark_makes_executors_by(key: str, value: str) -> None:
    executor = ExecutorSettings(instances=4, cores=2, memory="2g")
    made = conf_of(pod_of(spec(executor=executor, image_pull_secrets=("a", "b"))))
    assert made[key] == value


@pytest.mark.parametrize("key", sorted(conf._EXECUTOR_DEFAULTS))
def test_a_default_of_ours_can_be_changed(key: str) -> None:
    assert conf_of(pod_of(spec(spark_conf={key: "other"})))[key] == "other"


def test_a_driver_that_works_alone_has_no_template_of_executors() -> None:
    pod = pod_of(spec(executor=ALONE))
    assert TEMPLATE not in pod["metadata"]["annotations"]
    assert {v["name"] for v in pod["spec"]["volumes"]} == {"tmp", "work"}


def test_the_template_is_shown_to_the_driver_as_the_file_that_spark_is_told() -> None:
    pod = pod_of(spec())
    (volume,) = (v for v in pod["spec"]["volumes"] if "downwardAPI" in v)
    (item,) = volume["downwardAPI"]["items"]
    (mount,) = (
        m for m in pod["spec"]["containers"][0]["volumeMounts"] if m["name"] == volume["name"]
    )
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{TEMPLATE}']"
    told = conf_of(pod)["spark.kubernetes.executor.podTemplateFile"]
    assert f"{mount['mountPath']}/{item['path']}" == told


def test_the_template_is_a_pod_in_yaml_too() -> None:
    """Spark reads it as YAML."""
    text = pod_of(spec())["metadata"]["annotations"][TEMPLATE]
    assert yaml.safe_load(text) == executor_of()
    assert (executor_of()["apiVersion"], executor_of()["kind"]) == ("v1", "Pod")


def test_executors_are_labelled_as_the_jobs() -> None:
    labels = executor_of()["metadata"]["labels"]
    assert labels["sluicegate.dev/job"] == "clicks"
    assert labels["sluicegate.dev/role"] == "executor"
    assert labels["sluicegate.dev/attempt"] == "3"


def test_executors_are_not_held() -> None:
    """They are the driver's, and go with it."""
    assert not {"finalizers", "ownerReferences", "name"} & executor_of()["metadata"].keys()


def test_executors_reach_the_store_and_the_collector() -> None:
    told = env_of(executor_of(tracing=Tracing(endpoint="http://collector:4318")), "executor")
    assert told == {
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://s3:7070",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": {"secretKeyRef": {"name": "keys", "key": "accessKeyId"}},
        "AWS_SECRET_ACCESS_KEY": {"secretKeyRef": {"name": "keys", "key": "secretAccessKey"}},
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    }


def test_executors_have_the_identity_of_the_driver_but_no_token() -> None:
    """A store that trusts the account trusts them; the API server is none of their business."""
    made = executor_of(volume=CheckpointVolumeSpec(bucket="streams"))["spec"]
    assert made["serviceAccountName"] == "sluicegate-driver"
    assert made["automountServiceAccountToken"] is False


def test_an_executor_is_started_in_a_folder_that_it_can_write_to() -> None:
    """Spark copies jars into it."""
    (container,) = executor_of()["spec"]["containers"]
    assert container["workingDir"] in {m["mountPath"] for m in container["volumeMounts"]}


def test_a_users_template_is_merged_into_the_executors() -> None:
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
    made = executor_of(executor=ExecutorSettings(template=template))
    (container,) = made["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["labels"]["sluicegate.dev/job"] == "clicks"
    assert made["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert container["command"] == ["/entry"]
    assert (told["AWS_REGION"], told["MINE"]) == ("us-east-1", "1")


def test_the_drivers_template_is_not_the_executors() -> None:
    wanted = PodSettings(template={"spec": {"nodeSelector": {"disk": "ssd"}}})
    assert "nodeSelector" not in executor_of(driver=wanted)["spec"]


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "fits"), [(1, True), (52, True), (53, False)])
def test_a_name_is_short_enough_for_labels(
    length: int,
    fits: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    found = refused("x" * length, spec())
    assert (found is None) is fits


def test_the_api_server_refuses_a_long_name_too() -> None:
    version = STREAMING_JOB.definition()["spec"]["versions"][0]
    (rule,) = version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    assert rule["rule"] == "size(self.metadata.name) <= 52"
