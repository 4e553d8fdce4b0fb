"""The install without Helm and the examples: what can be seen of them without a cluster."""

import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluicegate_operator.pods.checks import refused
from sluicegate_operator.pods.names import DEFAULT_SERVICE_ACCOUNT
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.kinds import KINDS
from sluicegate_operator.resources.parsing import parse

OPERATORS = Path(__file__).parents[3] / "operators"
DEPLOY, EXAMPLES = OPERATORS / "deploy", OPERATORS / "examples"
ALL = DEPLOY
SOME = DEPLOY / "overlays" / "namespaced"
NAMES = ("kustomization.yaml", "Kustomization")

needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl renders what it would apply; there is none"
)

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    """Return what is in a file, but for a document of comments only."""
    return [found for found in yaml.safe_load_all(path.read_text()) if found is not None]


def kustomization(folder: Path) -> Document:
    (path,) = (folder / name for name in NAMES if (folder / name).is_file())
    (found,) = documents(path)
    return found


def included(folder: Path) -> Iterator[Path]:
    """Yield the files that a kustomization takes in, as far as it goes."""
    for resource in kustomization(folder)["resources"]:
        path = (folder / resource).resolve()
        if path.is_dir():
            yield from included(path)
        else:
            yield path


def within(folder: Path, kind: str) -> list[Document]:
    return [d for path in included(folder) for d in documents(path) if d["kind"] == kind]


def container() -> Document:
    (deployment,) = within(ALL, "Deployment")
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def rules(folder: Path = DEPLOY) -> Iterator[tuple[str, Document]]:
    """Yield each rule of each role below a folder, with the role's name."""
    for path in folder.rglob("*.yaml"):
        for found in documents(path):
            for rule in found.get("rules", ()):
                yield found["metadata"]["name"], rule


# --- the folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", sorted({p.parent for n in NAMES for p in DEPLOY.rglob(n)}), ids=str
)
def test_what_a_kustomization_names_is_there(folder: Path) -> None:
    assert all(path.is_file() for path in included(folder))


def test_every_manifest_is_part_of_an_install() -> None:
    reached = {path for n in NAMES for p in DEPLOY.rglob(n) for path in included(p.parent)}
    manifests = {p.resolve() for p in DEPLOY.rglob("*.yaml") if p.name not in NAMES}
    assert manifests <= reached


@pytest.mark.parametrize("folder", [ALL, SOME], ids=str)
def test_an_install_has_every_kind(folder: Path) -> None:
    found = {d["metadata"]["name"] for d in within(folder, "CustomResourceDefinition")}
    assert found == {f"{kind.plural}.sluicegate.dev" for kind in KINDS}


# --- rights ---------------------------------------------------------------------------------------


def test_no_right_is_a_wildcard() -> None:
    for name, rule in rules():
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], name


def test_each_rule_says_what_it_is_for() -> None:
    for path in DEPLOY.rglob("*.yaml"):
        lines = path.read_text().splitlines()
        for before, line in itertools.pairwise(lines):
            if line.startswith("- apiGroups"):
                assert before.startswith("# "), f"{path}: {line}"


def test_secrets_can_be_read_and_never_listed() -> None:
    found = [rule for _, rule in rules() if "secrets" in rule["resources"]]
    assert found
    assert all(rule["verbs"] == ["get"] and rule["resources"] == ["secrets"] for rule in found)


def test_in_some_namespaces_only_named_secrets_can_be_read() -> None:
    found = [
        rule
        for kind in ("Role", "ClusterRole")
        for role in within(SOME, kind)
        for rule in role["rules"]
        if "secrets" in rule["resources"]
    ]
    assert [rule["resourceNames"] for rule in found] == [["checkpoint-store"]]


def test_in_some_namespaces_nothing_but_nodes_is_bound_to_all() -> None:
    bound = [binding["roleRef"]["name"] for binding in within(SOME, "ClusterRoleBinding")]
    assert bound == ["sluicegate-operator-nodes"]


def test_only_the_operators_own_lease_can_be_written() -> None:
    found = [r for _, r in rules() if "leases" in r["resources"] and r["verbs"] != ["create"]]
    assert [rule["resourceNames"] for rule in found] == [["sluicegate-operator"]]


def test_the_operator_may_do_what_its_actions_need() -> None:
    """An action each; that the API server agrees is tested against one."""
    allowed = {
        (resource, verb)
        for name, rule in rules()
        if name == "sluicegate-operator"
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        ("streamingjobs", "patch"),  # AddFinalizer, RemoveFinalizer
        ("streamingjobs/status", "update"),
        ("pods", "create"),  # CreateDriver
        ("pods", "delete"),  # StopDriver, DropPod
        ("pods", "patch"),  # ReleasePod, DropPod
        ("savepoints", "create"),  # TakeSavepoint
        ("events", "create"),  # Report
    }
    watched = {
        (resource, verb)
        for resource in ("streamingjobs", "checkpointvolumes", "savepoints", "pods")
        for verb in ("get", "list", "watch")
    }
    assert needed | watched <= allowed


def test_drivers_have_their_account_where_the_pods_look_for_it() -> None:
    (account,) = within(DEPLOY / "job", "ServiceAccount")
    (binding,) = within(DEPLOY / "job", "RoleBinding")
    assert account["metadata"]["name"] == DEFAULT_SERVICE_ACCOUNT
    assert binding["subjects"][0]["name"] == DEFAULT_SERVICE_ACCOUNT


def test_a_driver_has_rights_on_pods_only() -> None:
    found = [rule for _, rule in rules(DEPLOY / "job")]
    assert [rule["resources"] for rule in found] == [["pods"]]


# --- the operator's pods --------------------------------------------------------------------------


def test_the_operator_runs_restricted() -> None:
    (deployment,) = within(ALL, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_two_replicas_take_turns_by_the_lease_that_they_may_write() -> None:
    (deployment,) = within(ALL, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    assert "--lease-name=sluicegate-operator" in container()["args"]
    assert "--lease-namespace=sluicegate-system" in container()["args"]


def test_a_container_that_is_started_again_is_known_as_the_same_pod() -> None:
    assert "--identity=$(POD_NAME)_$(POD_UID)" in container()["args"]
    paths = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container()["env"]}
    assert paths == {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")],
)
def test_a_probe_asks_the_port_that_is_served(probe: str, path: str) -> None:
    (port,) = container()["ports"]
    assert container()[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert f"--port={port['containerPort']}" in container()["args"]


# --- as kubectl renders it ------------------------------------------------------------------------


def rendered(folder: Path) -> list[Document]:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)],  # noqa: S607 - wherever it is installed
        capture_output=True,
        check=True,
        text=True,
    )
    return [found for found in yaml.safe_load_all(done.stdout) if found is not None]


@needs_kubectl
@pytest.mark.parametrize(
    ("folder", "argument"), [(ALL, "--all-namespaces"), (SOME, "--namespace=shop")], ids=str
)
def test_the_operator_is_told_which_namespaces(folder: Path, argument: str) -> None:
    (deployment,) = (d for d in rendered(folder) if d["kind"] == "Deployment")
    (made,) = deployment["spec"]["template"]["spec"]["containers"]
    assert made["args"][0] == argument
    assert made["image"] == "sluicegate/operator:0.1.0"


@needs_kubectl
def test_in_some_namespaces_its_rights_are_there_and_its_account_is_not() -> None:
    bindings = [
        d
        for d in rendered(SOME)
        if d["kind"] == "RoleBinding" and d["metadata"]["namespace"] == "shop"
    ]
    assert len(bindings) == 2
    assert {b["subjects"][0]["namespace"] for b in bindings} == {"sluicegate-system"}


@needs_kubectl
def test_the_account_of_drivers_can_be_put_into_any_namespace(tmp_path: Path) -> None:
    """As the comment in its kustomization says."""
    folder = OPERATORS / "deploy" / "job"
    copied = tmp_path / "job"
    shutil.copytree(folder, copied)
    (tmp_path / "kustomization.yaml").write_text("namespace: shop\nresources: [job]\n")
    found = rendered(tmp_path)
    (binding,) = (d for d in found if d["kind"] == "RoleBinding")
    assert {d["metadata"]["namespace"] for d in found} == {"shop"}
    assert binding["subjects"][0]["namespace"] == "shop"


# --- examples -------------------------------------------------------------------------------------

FOUND = [(path.name, d) for path in sorted(EXAMPLES.glob("*.yaml")) for d in documents(path)]
OURS = [(name, d) for name, d in FOUND if d["apiVersion"].startswith("sluicegate.dev/")]


def named(kind: str) -> set[str]:
    return {d["metadata"]["name"] for _, d in FOUND if d["kind"] == kind}


def secrets_of(part: Any) -> set[str]:
    """Return the names of Secrets that are referred to anywhere in a document."""
    if isinstance(part, list):
        return set().union(*map(secrets_of, part))
    if not isinstance(part, dict):
        return set()
    here = {part[key]["name"] for key in ("secretRef", "secretKeyRef") if key in part}
    return here.union(*map(secrets_of, part.values()))


@pytest.mark.parametrize(
    ("name", "document"), OURS, ids=[f"{n}:{d['metadata']['name']}" for n, d in OURS]
)
def test_an_example_is_taken(name: str, document: Document) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == document["kind"])
    made = parse(kind.spec, document["spec"], f"{name}: spec")
    if isinstance(made, StreamingJobSpec):
        assert refused(document["metadata"]["name"], made) is None


def test_there_is_an_example_of_every_kind() -> None:
    assert {d["kind"] for _, d in OURS} == {kind.name for kind in KINDS}


def test_what_examples_refer_to_is_in_them() -> None:
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


def test_the_store_of_the_examples_is_one_that_the_operator_may_read_the_keys_of() -> None:
    (volume,) = (d for _, d in OURS if d["kind"] == "CheckpointVolume")
    allowed = [r["resourceNames"] for _, r in rules(DEPLOY / "watched")]
    assert [volume["spec"]["credentialsSecret"]] in allowed
