"""The page for platform engineers, done as it says: its commands, by kubectl, on a real API server.

No command of the page is left out but those of which `NOT_RUN` says why. Where kubectl is not built
(`make tools`) these tests are skipped. Pods do not run here: the operator
that the page starts from a checkout sees to the resources, and there is no kubelet.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from infra import kubernetes
from infra.embedded.kubernetes import KubernetesServer
from infra.embedded.process import free_ports
from tests.operator.api import Api, eventually
from tests.operator.conftest import started
from tests.operator.page import REPOSITORY, blocks, columns, commands, heads

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S: Final = 60.0
EXAMPLES: Final = sorted((REPOSITORY / "operators" / "examples").glob("*.yaml"))

NOT_RUN: Final = {"kubectl logs ip-count-1-driver": "nothing of a pod runs here, so it has no log"}

NAMED: Final = {
    "kubectl delete sjob": "kubectl delete sjob nightly --wait=false",
    "kubectl annotate sjob NAME": "kubectl annotate sjob ip-count",
    "kubectl annotate sp NAME": "kubectl annotate sp ip-count-move",
    "kubectl patch pod NAME": "kubectl patch pod ip-count-1-driver",
    "kubectl taint node NODE": "kubectl taint node node-1",
}
"""What a reader puts in for the page's NAME and NODE."""


class Shell:
    """A reader's shell, in the root of the repository, with kubectl on an API server.

    Args:
        server: it runs.
        folder: where files of the reader's own are.
    """

    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        """Run nothing yet."""
        self.server: Final = server
        self.folder: Final = folder
        self.kubeconfig: Final = server.kubeconfig()
        self.environment: Final = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(folder),
        }

    def run(self, command: str) -> str:
        """Run a command of kubectl; return what it printed. Fail where it does."""
        argv = [str(kubernetes.KUBECTL.binary), *shlex.split(command)[1:]]
        done = subprocess.run(
            argv,
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Give a shell on a new API server, after the page's install."""
    gap = kubernetes.KUBECTL.gap()
    if gap:
        pytest.skip(gap)
    folder = tmp_path_factory.mktemp("page")
    with started(folder / "kubernetes") as server:
        found = Shell(server, folder)
        found.run("kubectl create namespace shop")  # which "must be there"
        for command in (c for c in commands("kubectl") if c.startswith("kubectl apply -k")):
            found.run(command)
        yield found


def test_the_install_makes_what_it_says(shell: Shell) -> None:
    """Both overlays, the account of drivers, and the three kinds."""
    printed = shell.run("kubectl get crd,deployment,serviceaccount,clusterrolebinding -A -o name")
    for thing in (
        "customresourcedefinition.apiextensions.k8s.io/streamingjobs.sluicegate.dev",
        "deployment.apps/sluicegate-operator",
        "serviceaccount/sluicegate-driver",
        "clusterrolebinding.rbac.authorization.k8s.io/sluicegate-operator",
    ):
        assert thing in printed


def test_an_install_can_be_applied_again(shell: Shell) -> None:
    printed = shell.run("kubectl apply -k operators/deploy")
    assert all(line.endswith(("unchanged", "configured")) for line in printed.splitlines())


def test_the_kustomizations_of_the_page_are_applied_as_they_stand(shell: Shell) -> None:
    """Beside a folder `operators`: the image is the reader's, the account is in another namespace."""
    shutil.copytree(REPOSITORY / "operators", shell.folder / "operators", dirs_exist_ok=True)
    given = [block for block in blocks("yaml") if "resources:" in block]
    assert len(given) == 2
    printed = []
    for number, block in enumerate(given):
        folder = shell.folder / f"mine-{number}"
        folder.mkdir(exist_ok=True)
        (folder / "kustomization.yaml").write_text(block, encoding="utf-8")
        printed.append(shell.run(f"kubectl apply -k {folder} -o yaml"))
    assert "registry.example/sluicegate/operator:0.1.0" in printed[0]
    account = yaml.safe_load(printed[1])["items"][0]["metadata"]
    assert (account["namespace"], account["name"]) == ("shop", "sluicegate-driver")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted(shell: Shell, path: Path) -> None:
    """As strictly as kubectl asks for, with a dry run before."""
    for how in ("--dry-run=server ", ""):
        printed = shell.run(f"kubectl apply {how}--validate=strict -f {path}")
        assert printed.strip()


def test_every_command_of_the_page_works(shell: Shell) -> None:
    """After the examples were applied, with an operator that runs as the page says."""
    for path in EXAMPLES:
        shell.run(f"kubectl apply -f {path}")
    api = Api(shell.server)
    api.ask("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    api.pod("default", "ip-count-1-driver", "sluicegate.dev/driver", job="ip-count", attempt="1")
    known = commands("kubectl")
    assert set(NOT_RUN) <= set(known), "the page does not say this any more"
    with _Operator(shell):
        eventually(lambda: "Pending" in shell.run("kubectl get sjob"), within_s=PATIENCE_S)
        ran = [shell.run(_named(command)) for command in known if command not in NOT_RUN]
    assert len(ran) == len(known) - len(NOT_RUN)
    assert len(ran) > 12, "the page's commands are not found"


def test_the_table_of_jobs_has_the_columns_that_the_page_shows(shell: Shell) -> None:
    shell.run(f"kubectl apply -f {EXAMPLES[1]}")
    assert heads(shell.run("kubectl get sjob")) == columns("kubectl get sjob")


def test_what_a_field_means_is_told_by_kubectl(shell: Shell) -> None:
    printed = shell.run("kubectl explain sjob.spec.restart")
    assert "fixed-delay" in printed
    assert "initialDelayS" in printed


class _Operator:
    """The operator as the page starts it from a checkout; the port is another, as tests run side by side."""

    def __init__(self, shell: Shell) -> None:
        (line,) = commands(".venv/bin/python")
        words = shlex.split(line.replace("FILE", str(shell.kubeconfig)))[1:]
        self._argv = [sys.executable, *words, "--port", str(free_ports(1)[0])]
        self._log = shell.folder / "operator.log"

    def __enter__(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._argv, cwd=REPOSITORY, stderr=log)

    def __exit__(self, *_: object) -> None:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(PATIENCE_S) == 0, self._log.read_text(encoding="utf-8")
        finally:
            self._process.kill()
            self._process.wait()


def _named(command: str) -> str:
    """Return a command with a name where the page leaves it to the reader."""
    for start, filled in NAMED.items():
        if command.startswith(start):
            return command.replace(start, filled, 1)
    return command
