"""The kubectl commands of the pages in docs/kubernetes, on a real API server.

Every command is run, except for those that `NOT_RUN` lists with the reason. Where kubectl is not built
(`make tools`), these tests are skipped. Pods do not run here: the operator that the page starts from a
checkout reconciles the resources, and there is no kubelet.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from infra import manifests
from infra.local_services.kube_apiserver import KubernetesServer
from infra.local_services.process import free_ports
from infra.toolchain import go_programs
from infra.workspace import CHECKOUT, work_folder
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.conftest import server_or_skip
from tests.integration.operator.page_commands import blocks, column_names, commands, shown_columns

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TIMEOUT_S: Final = 60.0
EXAMPLES: Final = sorted((CHECKOUT / "operators" / "examples").glob("*.yaml"))

_FEED: Final = next(line for line in commands("kubectl") if line.startswith("kubectl run feed "))

KINDS: Final = sorted((CHECKOUT / "operators" / "crds").glob("*.yaml"))

INSTALL: Final = "kubectl apply -f .work/manifests/sluicegate-operator.yaml"

NOT_RUN: Final = {
    "kubectl logs ip-count-1-driver": "no pod runs here, so there is no log",
    _FEED: "no pod runs here; `make e2e` feeds a job in the same way",
    "kubectl config set-context --current --namespace sluicegate": "it affects the other commands",
    "kubectl get sjob --watch": "it ends only when it is interrupted",
}

PLACEHOLDERS: Final = {
    "kubectl delete sjob": "kubectl delete sjob nightly --wait=false",
    "kubectl annotate sjob NAME": "kubectl annotate sjob ip-count",
    "kubectl annotate sp NAME": "kubectl annotate sp ip-count-move",
    "kubectl patch pod NAME": "kubectl patch pod ip-count-1-driver",
    "kubectl taint node NODE": "kubectl taint node node-1",
}
"""Commands with a placeholder, and the same with a name for it."""


class Shell:
    """A reader's shell, in the root of the repository, with kubectl on an API server.

    Args:
        server: a running API server.
        folder: folder for the reader's own files.
    """

    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        """Prepare the environment; nothing runs yet."""
        self.server: Final = server
        self.folder: Final = folder
        self.kubeconfig: Final = server.kubeconfig()
        self.environment: Final = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(folder),
        }

    def run(self, command: str) -> str:
        """Run a kubectl command that must succeed; return its output."""
        command = command.replace(" .work/", f" {work_folder()}/")
        argv = [str(go_programs.KUBECTL.binary), *shlex.split(command)[1:]]
        result = subprocess.run(
            argv,
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def serves_the_kinds(self) -> bool:
        """Return whether the API server offers the kinds, which it does a moment after their CRDs."""
        names = self.run("kubectl api-resources --api-group=sluicegate.dev -o name")
        return len(names.split()) == len(KINDS)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Yield a shell on a new API server, after the install of the page."""
    reason = go_programs.KUBECTL.missing_reason() or go_programs.HELM.missing_reason()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("page")
    with server_or_skip(folder / "kubernetes") as server:
        created = Shell(server, folder)
        make_manifests("make manifests")
        created.run(INSTALL)
        eventually(created.serves_the_kinds, within_s=TIMEOUT_S)
        yield created


def make_manifests(command: str) -> None:
    """Do what `make manifests` with the ARGS of a page does, without setting up the environment."""
    arguments = re.fullmatch(r'make manifests(?: ARGS="(.*)")?', command)
    assert arguments, command
    assert manifests.main(shlex.split(arguments[1] or "")) == 0


def test_the_install_creates_what_the_page_says(shell: Shell) -> None:
    """The operator, the account of drivers, and the three kinds."""
    output = shell.run("kubectl get crd,deployment,serviceaccount,rolebinding -A -o name")
    for name in (
        "customresourcedefinition.apiextensions.k8s.io/streamingjobs.sluicegate.dev",
        "deployment.apps/sluicegate-operator",
        "serviceaccount/sluicegate-driver",
        "rolebinding.rbac.authorization.k8s.io/sluicegate-operator-jobs",
    ):
        assert name in output


def test_an_install_can_be_applied_again(shell: Shell) -> None:
    make_manifests("make manifests")
    output = shell.run(INSTALL)
    assert all(line.endswith(("unchanged", "configured")) for line in output.splitlines())


def test_the_options_of_the_manifests_do_what_the_page_says(shell: Shell) -> None:
    """As on the page: one namespace, accounts in other namespaces, an image of the reader's registry."""
    shell.run("kubectl create namespace shop")  # which "must exist"
    shown = [command for command in commands("make") if command.startswith("make manifests ARGS")]
    assert len(shown) == 4
    outputs = []
    for command in shown:
        make_manifests(command)
        outputs.append(shell.run(f"{INSTALL} --dry-run=server --validate=strict -o yaml"))
    assert "--namespace=shop" in outputs[0]
    assert "- shop-s3" in outputs[0]
    assert "--all-namespaces" in outputs[1]
    items = yaml.safe_load(outputs[2])["items"]
    accounts = {
        item["metadata"]["namespace"]
        for item in items
        if (item["kind"], item["metadata"]["name"]) == ("ServiceAccount", "sluicegate-driver")
    }
    assert accounts == {"shop", "default"}
    assert "registry.example/sluicegate/operator:0.1.0" in outputs[3]


def test_manifests_of_the_pages_are_accepted(shell: Shell) -> None:
    """With strict validation, for every kind."""
    manifest_blocks = [block for block in blocks("yaml") if "apiVersion: sluicegate.dev" in block]
    assert len(manifest_blocks) >= 3
    for number, block in enumerate(manifest_blocks):
        path = shell.folder / f"manifest-{number}.yaml"
        path.write_text(block, encoding="utf-8")
        assert shell.run(f"kubectl apply --dry-run=server --validate=strict -f {path}").strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted(shell: Shell, path: Path) -> None:
    """With strict validation, first as a dry run."""
    for dry_run in ("--dry-run=server ", ""):
        output = shell.run(f"kubectl apply {dry_run}--validate=strict -f {path}")
        assert output.strip()


def test_every_command_of_the_page_works(shell: Shell) -> None:
    """The examples were applied, and an operator runs as the page shows."""
    for path in EXAMPLES:
        shell.run(f"kubectl apply -f {path}")
    api = Api(shell.server)
    api.request("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    api.pod("default", "ip-count-1-driver", "sluicegate.dev/driver", job="ip-count", attempt="1")
    known = commands("kubectl")
    assert set(NOT_RUN) <= set(known), "no page says this any more"
    with _Operator(shell):
        eventually(lambda: "Pending" in shell.run("kubectl get sjob"), within_s=TIMEOUT_S)
        outputs = [
            shell.run(_without_placeholders(command)) for command in known if command not in NOT_RUN
        ]
    assert len(outputs) == len(known) - len(NOT_RUN)
    assert len(outputs) > 12, "the commands of the pages are not found"


def test_the_table_of_jobs_has_the_columns_that_the_page_shows(shell: Shell) -> None:
    shell.run(f"kubectl apply -f {EXAMPLES[1]}")
    assert column_names(shell.run("kubectl get sjob")) == shown_columns("kubectl get sjob")


def test_kubectl_explains_the_fields_of_a_job(shell: Shell) -> None:
    output = shell.run("kubectl explain sjob.spec.restart")
    assert "FixedDelay" in output
    assert "initialDelaySeconds" in output


class _Operator:
    """The operator as the page starts it from a checkout, on a free port because tests run in parallel."""

    def __init__(self, shell: Shell) -> None:
        (line,) = (c for c in commands(".venv/bin/python") if "sluicegate_operator" in c)
        arguments = shlex.split(line.replace("FILE", str(shell.kubeconfig)))[1:]
        self._argv = [sys.executable, *arguments, "--port", str(free_ports(1)[0])]
        self._log = shell.folder / "operator.log"

    def __enter__(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._argv, cwd=CHECKOUT, stderr=log)

    def __exit__(self, *_: object) -> None:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(TIMEOUT_S) == 0, self._log.read_text(encoding="utf-8")
        finally:
            self._process.kill()
            self._process.wait()


def _without_placeholders(command: str) -> str:
    """Replace the placeholder of a command, if it has one, by a name."""
    for start, replacement in PLACEHOLDERS.items():
        if command.startswith(start):
            return command.replace(start, replacement, 1)
    return command
