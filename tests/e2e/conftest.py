"""The cluster of `make kind-up` and the release under test; collects diagnostics of failed tests."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from infra.chart_docs import helm
from infra.demo.access_log import LogShape, access_log
from infra.toolchain import go_programs
from infra.workspace import CHECKOUT, work_folder
from tests.e2e.cluster import Cluster, CommandFailed
from tests.e2e.platform import (
    NAMESPACE,
    OPERATOR_NAMESPACE,
    RELEASE,
    TENANT,
    TENANT_USER,
    VOLUME,
    Platform,
)

KUBECONFIG = work_folder() / "kind" / "kubeconfig"
LOG = CHECKOUT.parent / "shared" / "data" / "access.log.gz"
DIAGNOSTICS = work_folder() / "e2e"
"""Folder with logs and resources of failed tests."""


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Return the cluster; `make e2e` starts it."""
    if not KUBECONFIG.is_file():
        pytest.skip("there is no cluster: run `make e2e`, or `make kind-up` first")
    return Cluster(
        KUBECONFIG, go_programs.link_tool("kubectl"), go_programs.link_tool("helm"), NAMESPACE
    )


@pytest.fixture(scope="session")
def platform(cluster: Cluster) -> Platform:
    """Install the platform with its defaults, and with a second tenant for `test_2_tenants`."""
    users = [
        {"name": VOLUME, "bucket": "sluicegate"},
        {"name": "tenant", "bucket": "tenants", "prefix": TENANT, "namespace": TENANT},
        {"name": "bank", "bucket": "tenants", "prefix": "bank"},
    ]
    watched = {"namespaces": [NAMESPACE, TENANT], "secrets": [TENANT_USER]}
    values = {"object-store.users": users, "operator.watch": watched}
    options = [("--set-json", f"{key}={json.dumps(value)}") for key, value in values.items()]
    return install(cluster, *chain.from_iterable(options), others=(TENANT,))


def install(
    cluster: Cluster, *options: str, secured: bool = False, others: tuple[str, ...] = ()
) -> Platform:
    """Install the platform in a clean namespace that enforces `restricted`, and create others."""
    helm.vendor()
    clear(cluster)
    for name in (NAMESPACE, *others):
        cluster.run("create", "namespace", name)
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.run("label", "namespace", NAMESPACE, label)
    chart = str(CHECKOUT / "charts" / "sluicegate")
    cluster.helm("install", RELEASE, chart, "--wait", "--timeout", "10m", *options)
    installed = Platform(cluster, secured=secured)
    installed.create_client_pod()
    return installed


def clear(cluster: Cluster) -> None:
    """Force the removal of an earlier run's resources, which may be broken."""
    remove_finalizers(replace(cluster, namespace=TENANT))
    delete_namespace(cluster, TENANT)
    if cluster.get("namespace", NAMESPACE) is None:
        delete_namespace(cluster, OPERATOR_NAMESPACE)
        return
    with contextlib.suppress(CommandFailed):  # the earlier run may have stopped before this
        cluster.helm("uninstall", RELEASE, "--no-hooks")
    remove_finalizers(cluster)
    # a driver would wait for its epoch, but its Kafka is already deleted
    cluster.run("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
    for namespace in (NAMESPACE, OPERATOR_NAMESPACE):
        delete_namespace(cluster, namespace)


def remove_finalizers(cluster: Cluster) -> None:
    """Remove the finalizers of the resources in a namespace."""
    for kind in ("streamingjob", "savepoint", "checkpointvolume", "pod"):
        for name in names(cluster, kind):
            with contextlib.suppress(CommandFailed):  # it is already deleted
                cluster.patch(kind, name, {"metadata": {"finalizers": None}})


def delete_namespace(cluster: Cluster, name: str) -> None:
    """Delete a namespace; an uninstall keeps the operator's."""
    cluster.run(
        *("delete", "namespace", name, "--ignore-not-found", "--timeout=180s"), timeout_s=190.0
    )


def names(cluster: Cluster, kind: str) -> list[str]:
    """Return the names of all objects of a kind, which may not be installed."""
    try:
        return [resource["metadata"]["name"] for resource in cluster.list_objects(kind)]
    except CommandFailed:
        return []


@pytest.fixture(scope="session")
def lines() -> Iterator[bytes]:
    """Return the lines of the log; the tests of one installation use each line once."""
    return log_lines()


def log_lines() -> Iterator[bytes]:
    """Return the lines of `LOG` if the file exists, otherwise of a generated access log."""
    if LOG.is_file():
        return iter(gzip.decompress(LOG.read_bytes()).splitlines())
    return access_log(LogShape(lines=10_000, seed=7))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Collect the state of the cluster when a test fails."""
    report = yield
    if report.failed and KUBECONFIG.is_file():
        folder = DIAGNOSTICS / item.name
        tools = go_programs.link_tool("kubectl"), go_programs.link_tool("helm")
        collect(Cluster(KUBECONFIG, *tools, NAMESPACE), folder)
        collect(Cluster(KUBECONFIG, *tools, OPERATOR_NAMESPACE), folder / "operator")
        report.sections.append(("cluster", f"logs and resources are in {folder}"))
    return report


def collect(cluster: Cluster, folder: Path) -> None:
    """Write resources, Events and the logs of all pods to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = "streamingjobs,checkpointvolumes,savepoints,pods,jobs,pvc,configmaps"
    commands = {
        "resources.yaml": ["get", kinds, "-o", "yaml"],
        "events.txt": ["get", "events", "--sort-by=.lastTimestamp"],
        "nodes.txt": ["describe", "nodes"],
    }
    with contextlib.suppress(CommandFailed):
        for pod in cluster.list_objects("pods"):
            name = pod["metadata"]["name"]
            commands[f"{name}.log"] = ["logs", name, "--all-containers", "--tail=2000"]
            commands[f"{name}.before.log"] = ["logs", name, "--previous", "--tail=500"]
    for file, arguments in commands.items():
        try:
            text = cluster.run(*arguments)
        except CommandFailed as error:
            text = str(error)
        (folder / file).write_text(text, encoding="utf-8")
