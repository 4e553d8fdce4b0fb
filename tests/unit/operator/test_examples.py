"""The examples: valid by the operator's own rules, and complete."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.workspace import CHECKOUT
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.crds import KINDS
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.pods.driver import validate

Document = dict[str, Any]

EXAMPLES = CHECKOUT / "operators" / "examples"
OPERATOR_VALUES = CHECKOUT / "charts" / "operator" / "values.yaml"


def documents(path: Path) -> list[Document]:
    """Return the documents of a file, except for those with comments only."""
    return [found for found in yaml.safe_load_all(path.read_text()) if found is not None]


FOUND = [(path.name, d) for path in sorted(EXAMPLES.glob("*.yaml")) for d in documents(path)]
OURS = [(name, d) for name, d in FOUND if d["apiVersion"].startswith("sluicegate.dev/")]


def named(kind: str) -> set[str]:
    return {d["metadata"]["name"] for _, d in FOUND if d["kind"] == kind}


def secrets_of(part: Any) -> set[str]:
    """Return the names of the Secrets that a document refers to."""
    if isinstance(part, list):
        return set().union(*map(secrets_of, part))
    if not isinstance(part, dict):
        return set()
    here = {part[key]["name"] for key in ("secretRef", "secretKeyRef") if key in part}
    return here.union(*map(secrets_of, part.values()))


@pytest.mark.parametrize(
    ("name", "document"), OURS, ids=[f"{n}:{d['metadata']['name']}" for n, d in OURS]
)
def test_each_example_is_valid(name: str, document: Document) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == document["kind"])
    made = parse(kind.spec, document["spec"], f"{name}: spec")
    if isinstance(made, StreamingJobSpec):
        assert validate(document["metadata"]["name"], made) is None


def test_each_kind_has_an_example() -> None:
    assert {d["kind"] for _, d in OURS} == {kind.name for kind in KINDS}


def test_examples_refer_only_to_each_other() -> None:
    for _, document in OURS:
        spec = document["spec"]
        if document["kind"] == "StreamingJob":
            assert secrets_of(spec) <= named("Secret")
            assert spec["checkpoint"]["volume"] in named("CheckpointVolume")
            assert spec["checkpoint"].get("restoreFrom", "ip-count-move") in named("Savepoint")
        if document["kind"] == "CheckpointVolume":
            assert spec["credentialsSecret"] in named("Secret")
        if document["kind"] == "Savepoint":
            assert spec["job"] in named("StreamingJob")


def test_a_namespaced_operator_may_read_the_secret_of_the_example_store() -> None:
    (volume,) = (d for _, d in OURS if d["kind"] == "CheckpointVolume")
    (values,) = documents(OPERATOR_VALUES)
    assert volume["spec"]["credentialsSecret"] in values["watch"]["secrets"]


def test_a_disk_of_an_executor_is_writable_for_the_user_of_the_image() -> None:
    """A new volume of a block store belongs to root."""
    pods = [
        pod["template"]["spec"]
        for _, document in OURS
        for pod in (document["spec"].get("driver", {}), document["spec"].get("executor", {}))
        if "template" in pod
    ]
    with_disks = [
        pod
        for pod in pods
        if any({"ephemeral", "persistentVolumeClaim"} & set(v) for v in pod.get("volumes", []))
    ]
    assert with_disks
    assert all(pod["securityContext"]["fsGroup"] == 10001 for pod in with_disks)
