"""The user's templates in the driver's pod: merged, refused, and never above what is ours."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.pods.checks import refused
from sluicegate_operator.pods.merging import merged
from sluicegate_operator.pods.templates import RESERVED_ENV
from sluicegate_operator.resources.job import ExecutorSettings, PodSettings

from .made import spec
from .manifests import container_of, env_of, pod_of, templated


def of_driver(**container: Any) -> dict[str, Any]:
    """Return a template that says something of our container."""
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
def test_merging(base: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy((base, over))
    assert merged(base, over) == expected
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
def test_a_template_has_the_last_word_on(part: dict[str, Any]) -> None:
    pod = pod_of(templated({"spec": part}))["spec"]
    assert {key: pod[key] for key in part} == part


def test_the_jobs_account_is_above_the_templates() -> None:
    wanted = spec(
        service_account="jobs", driver=PodSettings(template={"spec": {"serviceAccountName": "x"}})
    )
    assert pod_of(wanted)["spec"]["serviceAccountName"] == "jobs"


def test_labels_and_annotations_are_added() -> None:
    template = {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}}
    metadata = pod_of(templated(template))["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["annotations"]["b"] == "c"
    assert metadata["labels"]["sluicegate.dev/job"] == "clicks"


def test_a_node_may_be_emptied_if_the_template_says_so() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    template = {"metadata": {"annotations": {key: "true"}}}
    assert pod_of(templated(template))["metadata"]["annotations"][key] == "true"


def test_variables_are_added_behind_ours() -> None:
    """So that they may refer to ours; ours never refer to them."""
    pod = pod_of(templated(of_driver(env=[{"name": "ME", "value": "$(SLUICEGATE_POD_NAME)"}])))
    names = [one["name"] for one in container_of(pod)["env"]]
    assert names.index("ME") > names.index("SLUICEGATE_POD_NAME")


def test_a_default_variable_can_be_changed() -> None:
    pod = pod_of(templated(of_driver(env=[{"name": "SPARK_LOCAL_DIRS", "value": "/fast"}])))
    assert env_of(pod)["SPARK_LOCAL_DIRS"] == "/fast"


def test_a_volume_of_ours_can_be_replaced() -> None:
    template = {"spec": {"volumes": [{"name": "work", "ephemeral": {"volumeClaimTemplate": {}}}]}}
    pod = pod_of(templated(template))
    (work,) = (v for v in pod["spec"]["volumes"] if v["name"] == "work")
    assert work == {"name": "work", "ephemeral": {"volumeClaimTemplate": {}}}
    assert {"name": "work", "mountPath": "/var/tmp"} in container_of(pod)["volumeMounts"]


def test_part_of_a_security_context_can_be_changed() -> None:
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
def test_a_resource_of_the_template_is_its_alone(
    given_resources: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Our request above its limit would be refused by the API server."""
    pod = pod_of(templated(of_driver(resources=given_resources)))
    assert container_of(pod)["resources"] == expected


def test_sidecars_stand_behind_the_driver() -> None:
    template = {"spec": {"containers": [{"name": "log", "image": "l"}, {"name": "driver"}]}}
    pod = pod_of(templated(template))
    assert [c["name"] for c in pod["spec"]["containers"]] == ["driver", "log"]
    assert container_of(pod, "log") == {"name": "log", "image": "l"}


CONTRADICTIONS = [
    ({"metadata": {"name": "mine"}}, "metadata.name is the operator's"),
    ({"metadata": {"finalizers": ["x/y"]}}, "metadata.finalizers is the operator's"),
    ({"metadata": {"ownerReferences": [{"uid": "u"}]}}, "metadata.ownerReferences"),
    ({"metadata": {"labels": {"sluicegate.dev/job": "b"}}}, "metadata.labels[sluicegate.dev/job]"),
    ({"metadata": {"annotations": {"sluicegate.dev/progress": "{}"}}}, "metadata.annotations["),
    ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy must be Never"),
    ({"spec": {"terminationGracePeriodSeconds": 1}}, "spec.graceS says it"),
    (of_driver(image="other"), "spec.image says it"),
    (of_driver(command=["sh"]), "mainFile or mainModule says it"),
    (of_driver(args=["x"]), "spec.arguments says it"),
    (of_driver(restartPolicy="Always"), "a driver is replaced by a new pod"),
    (of_driver(terminationMessagePath="/x"), "terminationMessagePath cannot be given"),
    (of_driver(env=[{"name": "SLUICEGATE_CHECKPOINT", "value": "x"}]), "is the operator's"),
    (of_driver(env=[{"name": "SLUICEGATE_RESTORE_FROM", "value": "x"}]), "is the operator's"),
    ({"spec": []}, "spec must be a mapping"),
    ({"spec": {"containers": {}}}, "spec.containers must be a list"),
    ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0] must be a mapping with name"),
    (of_driver(env=[3]), "spec.containers[driver].env[0] must be a mapping with name"),
    (of_driver(resources={"limits": 3}), "resources.limits must be a mapping"),
    ({"metadata": {"labels": ["a"]}}, "metadata.labels must be a mapping"),
    ({"nodeSelector": {}}, "there is no nodeSelector in a PodTemplateSpec"),
]


@pytest.mark.parametrize(("template", "says"), CONTRADICTIONS)
def test_a_template_that_contradicts_is_refused(template: dict[str, Any], says: str) -> None:
    found = refused("clicks", templated(template))
    assert found is not None
    assert says in found.what
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
def test_what_does_not_contradict_is_taken(template: dict[str, Any]) -> None:
    assert refused("clicks", templated(template)) is None
    assert pod_of(templated(template))["metadata"]["name"] == "clicks-3-driver"


def test_an_executors_template_is_looked_at_too() -> None:
    found = refused("clicks", spec(executor=ExecutorSettings(template={"spec": 3})))
    assert found is not None
    assert found.what == "executor.template: spec must be a mapping"


def test_no_pod_is_made_of_a_template_that_has_no_shape() -> None:
    with pytest.raises(SettingsInvalid, match="must be a mapping"):
        pod_of(templated({"spec": 3}))


# --- whatever the template, ours hold -----------------------------------------------------------

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


@settings(deadline=None)  # a busy machine is no failure
@given(TEMPLATES)
def test_whatever_the_template_ours_hold(template: dict[str, Any]) -> None:
    """Also of one that is refused where the spec is read: a spec can be older than a check."""
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

    told = env_of(pod)
    assert {name: told[name] for name in OUR_ENV} == OUR_ENV
    assert not (told.keys() & RESERVED_ENV) - OUR_ENV.keys()
    assert len(inside["env"][: len(OUR_ENV)]) == len(OUR_ENV)
    assert {one["name"] for one in inside["env"][: len(OUR_ENV)]} == OUR_ENV.keys()

    (shown,) = (m for m in inside["volumeMounts"] if m["mountPath"] == "/etc/sluicegate")
    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == shown["name"])
    assert volume in PLAIN["spec"]["volumes"]
