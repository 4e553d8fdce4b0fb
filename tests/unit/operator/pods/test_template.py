"""The user's templates in the driver's pod: how they are merge, what is rejected, what cannot be overridden."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.streaming_job_settings import ExecutorSettings, PodSettings
from sluicegate_operator.pods.driver import validate
from sluicegate_operator.pods.template import RESERVED_ENV, merge
from tests.unit.operator.builders import spec
from tests.unit.operator.pods.pod_builders import container_of, env_of, pod_of, templated


def of_driver(**container: Any) -> dict[str, Any]:
    """Return a template that sets fields of our container."""
    return {"spec": {"containers": [{"name": "driver", **container}]}}


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": 1, "b": 1}, {"a": None}, {"b": 1}),
        ({"a": None}, {}, {}),
        ({"a": {"x": 1}}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": {"x": 2, "y": None}}, {"a": {"x": 2}}),
        ({"command": ["a"]}, {"command": ["b"]}, {"command": ["b"]}),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
            {"env": [{"name": "B", "valueFrom": {}}, {"name": "C", "value": "1"}]},
            {
                "env": [
                    {"name": "B", "valueFrom": {}},
                    {"name": "C", "value": "1"},
                    {"name": "A", "value": "1"},
                ]
            },
        ),
        (
            {"volumes": [{"name": "tmp", "emptyDir": {}}]},
            {"volumes": [{"name": "tmp", "ephemeral": {}}]},
            {"volumes": [{"name": "tmp", "ephemeral": {}}]},
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/tmp"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/tmp"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/tmp"}]},
        ),
        (
            {"containers": [{"name": "driver", "image": "a", "tty": True}, {"name": "x"}]},
            {"containers": [{"name": "driver", "image": "b"}]},
            {"containers": [{"name": "driver", "image": "b", "tty": True}, {"name": "x"}]},
        ),
    ],
)
def test_merge(base: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy((base, over))
    assert merge(base, over) == expected
    assert (base, over) == before


@pytest.mark.parametrize(
    "part",
    [
        {"nodeSelector": {"disk": "ssd"}},
        {"tolerations": [{"key": "spot", "operator": "Exists"}]},
        {"affinity": {"nodeAffinity": {}}},
        {"priorityClassName": "streams"},
        {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}]},
        {"initContainers": [{"name": "proxy", "image": "p", "restartPolicy": "Always"}]},
        {"automountServiceAccountToken": False},
        {"serviceAccountName": "mine"},
        {"runtimeClassName": "gvisor"},
    ],
    ids=lambda part: next(iter(part)),
)
def test_template_may_set(part: dict[str, Any]) -> None:
    pod = pod_of(templated({"spec": part}))["spec"]
    assert {key: pod[key] for key in part} == part


def test_service_account_of_the_job_overrides_the_template() -> None:
    job_spec = spec(
        service_account="jobs", driver=PodSettings(template={"spec": {"serviceAccountName": "x"}})
    )
    assert pod_of(job_spec)["spec"]["serviceAccountName"] == "jobs"


def test_labels_and_annotations_are_added() -> None:
    template = {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}}
    metadata = pod_of(templated(template))["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["annotations"]["b"] == "c"
    assert metadata["labels"]["sluicegate.dev/job"] == "clicks"


def test_template_may_permit_eviction() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    template = {"metadata": {"annotations": {key: "true"}}}
    assert pod_of(templated(template))["metadata"]["annotations"][key] == "true"


def test_variables_of_the_template_come_after_ours() -> None:
    """They may refer to ours; ours never refer to them."""
    pod = pod_of(templated(of_driver(env=[{"name": "ME", "value": "$(SLUICEGATE_POD_NAME)"}])))
    names = [one["name"] for one in container_of(pod)["env"]]
    assert names.index("ME") > names.index("SLUICEGATE_POD_NAME")


def test_default_variable_can_be_changed() -> None:
    pod = pod_of(templated(of_driver(env=[{"name": "SPARK_LOCAL_DIRS", "value": "/fast"}])))
    assert env_of(pod)["SPARK_LOCAL_DIRS"] == "/fast"


def test_default_volume_can_be_replaced() -> None:
    template = {"spec": {"volumes": [{"name": "work", "ephemeral": {"volumeClaimTemplate": {}}}]}}
    pod = pod_of(templated(template))
    (work,) = (v for v in pod["spec"]["volumes"] if v["name"] == "work")
    assert work == {"name": "work", "ephemeral": {"volumeClaimTemplate": {}}}
    assert {"name": "work", "mountPath": "/var/tmp"} in container_of(pod)["volumeMounts"]


def test_part_of_the_security_context_can_be_changed() -> None:
    pod = pod_of(templated(of_driver(securityContext={"readOnlyRootFilesystem": False})))
    inside = container_of(pod)["securityContext"]
    assert inside["readOnlyRootFilesystem"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("given_resources", "expected"),
    [
        (
            {"limits": {"memory": "1Gi"}},
            {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
        ),
        (
            {"requests": {"cpu": "200m"}},
            {"requests": {"cpu": "200m", "memory": "1433Mi"}, "limits": {"memory": "1433Mi"}},
        ),
        (
            {"limits": {"example.com/gpu": "1"}},
            {
                "requests": {"cpu": "1", "memory": "1433Mi"},
                "limits": {"memory": "1433Mi", "example.com/gpu": "1"},
            },
        ),
    ],
)
def test_resource_in_the_template_replaces_our_request_and_limit(
    given_resources: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The API server would reject a request of ours that exceeds the template's limit."""
    pod = pod_of(templated(of_driver(resources=given_resources)))
    assert container_of(pod)["resources"] == expected


def test_sidecars_come_after_the_driver() -> None:
    template = {"spec": {"containers": [{"name": "log", "image": "l"}, {"name": "driver"}]}}
    pod = pod_of(templated(template))
    assert [c["name"] for c in pod["spec"]["containers"]] == ["driver", "log"]
    assert container_of(pod, "log") == {"name": "log", "image": "l"}


CONFLICTS = [
    ({"metadata": {"name": "mine"}}, "metadata.name is reserved for the operator"),
    ({"metadata": {"finalizers": ["x/y"]}}, "metadata.finalizers is reserved for the operator"),
    ({"metadata": {"ownerReferences": [{"uid": "u"}]}}, "metadata.ownerReferences"),
    ({"metadata": {"labels": {"sluicegate.dev/job": "b"}}}, "metadata.labels[sluicegate.dev/job]"),
    ({"metadata": {"annotations": {"sluicegate.dev/progress": "{}"}}}, "metadata.annotations["),
    ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy must be Never"),
    ({"spec": {"terminationGracePeriodSeconds": 1}}, "set spec.terminationGracePeriodSeconds"),
    (of_driver(image="other"), "set spec.image"),
    (of_driver(command=["sh"]), "set mainFile or mainModule"),
    (of_driver(args=["x"]), "set spec.arguments"),
    (of_driver(restartPolicy="Always"), "a driver is replaced by a new pod"),
    (of_driver(terminationMessagePath="/x"), "terminationMessagePath cannot be set"),
    (
        of_driver(env=[{"name": "SLUICEGATE_CHECKPOINT", "value": "x"}]),
        "is reserved for the operator",
    ),
    (
        of_driver(env=[{"name": "SLUICEGATE_RESTORE_FROM", "value": "x"}]),
        "is reserved for the operator",
    ),
    ({"spec": []}, "spec must be a mapping"),
    ({"spec": {"containers": {}}}, "spec.containers must be a list"),
    ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0] must be a mapping with name"),
    (of_driver(env=[3]), "spec.containers[driver].env[0] must be a mapping with name"),
    (of_driver(resources={"limits": 3}), "resources.limits must be a mapping"),
    ({"metadata": {"labels": ["a"]}}, "metadata.labels must be a mapping"),
    ({"nodeSelector": {}}, "a PodTemplateSpec has no nodeSelector"),
]


@pytest.mark.parametrize(("template", "problem"), CONFLICTS)
def test_conflicting_template_is_rejected(template: dict[str, Any], problem: str) -> None:
    found = validate("clicks", templated(template))
    assert found is not None
    assert problem in found.what
    assert found.what.startswith("driver.template: ")


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"metadata": {"creationTimestamp": None}, "spec": None},
        {"spec": {"restartPolicy": "Never"}},
        of_driver(env=[{"name": "SLUICEGATE_KAFKA", "value": "k:9092"}]),
        of_driver(env=[{"name": "AWS_ACCESS_KEY_ID", "value": "for a volume without a Secret"}]),
        {"spec": {"containers": [{"name": "log", "image": "l", "command": ["x"]}]}},
    ],
)
def test_template_without_conflicts_is_accepted(template: dict[str, Any]) -> None:
    assert validate("clicks", templated(template)) is None
    assert pod_of(templated(template))["metadata"]["name"] == "clicks-3-driver"


def test_executor_template_is_validated_too() -> None:
    found = validate("clicks", spec(executor=ExecutorSettings(template={"spec": 3})))
    assert found is not None
    assert found.what == "executor.template: spec must be a mapping"


def test_malformed_template_makes_no_pod() -> None:
    with pytest.raises(SettingsInvalid, match="must be a mapping"):
        pod_of(templated({"spec": 3}))


# --- no template overrides reserved fields -------------------------------------------------------

TEXTS = st.sampled_from(["a", "b", "Always", "$(A)", ""])
ENV = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from([*sorted(RESERVED_ENV), "AWS_SECRET_ACCESS_KEY", "MINE", "A"])},
        optional={"value": TEXTS, "valueFrom": st.just({"fieldRef": {"fieldPath": "x"}})},
    ),
    max_size=6,
)
TEXT_FIELDS = (
    "image",
    "imagePullPolicy",
    "restartPolicy",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "workingDir",
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["driver", "driver", "executor", "log"])},
    optional={
        **dict.fromkeys(TEXT_FIELDS, TEXTS),
        "command": st.lists(TEXTS, max_size=2),
        "args": st.lists(TEXTS, max_size=2),
        "env": st.none() | ENV,
        "restartPolicyRules": st.just([{"action": "Restart"}]),
        "resources": st.dictionaries(
            st.sampled_from(["requests", "limits"]),
            st.none() | st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), TEXTS),
        ),
        "volumeMounts": st.lists(
            st.fixed_dictionaries(
                {
                    "name": TEXTS,
                    "mountPath": st.sampled_from(["/tmp", "/var/tmp", "/etc/sluicegate", "/x"]),
                }
            ),
            max_size=3,
        ),
    },
)
KEYS = st.sampled_from(
    ["sluicegate.dev/job", "sluicegate.dev/attempt", "sluicegate.dev/spec-hash", "team"]
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "name": TEXTS,
                "namespace": TEXTS,
                "generateName": TEXTS,
                "labels": st.none() | st.dictionaries(KEYS, st.none() | TEXTS),
                "annotations": st.none() | st.dictionaries(KEYS, st.none() | TEXTS),
                "finalizers": st.none() | st.lists(TEXTS, max_size=2),
                "ownerReferences": st.none() | st.just([{"uid": "other"}]),
            },
        ),
        "spec": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "restartPolicy": st.none() | TEXTS,
                "terminationGracePeriodSeconds": st.none() | st.integers(0, 9),
                "containers": st.none()
                | st.lists(CONTAINER, max_size=3, unique_by=lambda c: str(c["name"])),
                "volumes": st.none()
                | st.lists(
                    st.fixed_dictionaries(
                        {"name": st.sampled_from(["tmp", "work", "sluicegate-executor", "v"])},
                        optional={"emptyDir": st.just({}), "configMap": st.just({"name": "c"})},
                    ),
                    max_size=3,
                    unique_by=lambda v: str(v["name"]),
                ),
                "nodeSelector": st.dictionaries(TEXTS, TEXTS),
            },
        ),
    },
)
PLAIN = pod_of(spec())
OUR_ENV = {
    name: value
    for name, value in env_of(PLAIN).items()
    if name not in ("SPARK_LOCAL_DIRS", "PYTHONUNBUFFERED")
}
OUR_FIELDS = (
    "image",
    "imagePullPolicy",
    "command",
    "terminationMessagePath",
    "terminationMessagePolicy",
)


@settings(deadline=None)  # a busy machine must not fail the test
@given(TEMPLATES)
def test_no_template_overrides_reserved_fields(template: dict[str, Any]) -> None:
    """This includes a template that is rejected when the spec is read: a spec may be older than a check."""
    before = copy.deepcopy(template)
    pod = pod_of(spec(driver=PodSettings(template=template)))
    assert template == before, "the user's template was changed"

    metadata, inside = pod["metadata"], container_of(pod)
    for field in ("name", "namespace", "finalizers", "ownerReferences"):
        assert metadata[field] == PLAIN["metadata"][field]
    assert "generateName" not in metadata
    for part in ("labels", "annotations"):
        ours = {k: v for k, v in PLAIN["metadata"][part].items() if k.startswith("sluicegate.dev/")}
        found = {k: v for k, v in metadata[part].items() if k.startswith("sluicegate.dev/")}
        assert found == ours

    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 180
    assert pod["spec"]["containers"][0] is inside
    for field in OUR_FIELDS:
        assert inside[field] == container_of(PLAIN)[field]
    assert not {"args", "restartPolicy", "restartPolicyRules"} & inside.keys()

    variables = env_of(pod)
    assert {name: variables[name] for name in OUR_ENV} == OUR_ENV
    assert not (variables.keys() & RESERVED_ENV) - OUR_ENV.keys()
    assert len(inside["env"][: len(OUR_ENV)]) == len(OUR_ENV)
    assert {one["name"] for one in inside["env"][: len(OUR_ENV)]} == OUR_ENV.keys()

    (mount,) = (m for m in inside["volumeMounts"] if m["mountPath"] == "/etc/sluicegate")
    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
    assert volume in PLAIN["spec"]["volumes"]
