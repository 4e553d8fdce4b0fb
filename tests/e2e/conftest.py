"""The cluster of `make kind-up` and the release under test; collects diagnostics of failed tests."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from infra.chart_docs import helm
from infra.demo.access_log import LogShape, access_log
from infra.toolchain import go_programs
from infra.workspace import CHECKOUT, work_folder
from tests.e2e import disk
from tests.e2e.cluster import Cluster, CommandFailed, Object
from tests.e2e.manifests import ip_count, two_sinks
from tests.e2e.platform import (
    CONSOLE_URL,
    NAMESPACE,
    OPERATOR_NAMESPACE,
    RELEASE,
    STORE,
    TENANT,
    TENANT_USER,
    VOLUME,
    Platform,
)

KUBECONFIG = work_folder() / "kind" / "kubeconfig"
LOG = CHECKOUT.parent / "shared" / "data" / "access.log.gz"
CHART = CHECKOUT / "charts" / "sluicegate"
DIAGNOSTICS = work_folder() / "e2e"
"""Folder with logs and resources of failed tests."""

LINES, RECORDS = 300, 300
"""Number of lines and records that a call of `feed` feeds."""

_SECURED_CONSOLE = {
    "object-store.users": [
        {"name": VOLUME, "bucket": "sluicegate"},
        {"name": "backups", "bucket": "sluicegate-backups"},
        {"name": "console", "bucket": "sluicegate", "readOnly": True},
    ],
    "console.store.endpoint": f"https://{STORE}.{NAMESPACE}.svc:7070",
    "console.store.authoritySecret": f"{STORE}-tls",
    "console.resources.requests.cpu": "20m",
}
"""Values of the console of a secured platform besides those of its two files."""

Feed = Callable[[], None]


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
    """Install the platform with its defaults, a console, and a second tenant for `test_2_tenants`."""
    users = [
        {"name": VOLUME, "bucket": "sluicegate"},
        {"name": "console", "bucket": "sluicegate", "readOnly": True},
        {"name": "tenant", "bucket": "tenants", "prefix": TENANT, "namespace": TENANT},
        {"name": "bank", "bucket": "tenants", "prefix": "bank"},
    ]
    watched = {"namespaces": [NAMESPACE, TENANT], "secrets": [TENANT_USER]}
    values = {
        "object-store.users": users,
        "operator.watch": watched,
        "operator.consoleURL": CONSOLE_URL,
    }
    options = [("--values", str(CHART / "ci" / "console-values.yaml"))]
    options += [("--set-json", f"{key}={json.dumps(value)}") for key, value in values.items()]
    return install(cluster, *itertools.chain.from_iterable(options), others=(TENANT,))


@pytest.fixture(scope="session")
def secured(cluster: Cluster) -> Iterator[Platform]:
    """Install the platform with all that can be on: TLS, logins, three Kafka nodes, backups, a console.

    The store's volume is a disk whose power can be cut.
    """
    clear(cluster)
    cluster.run("delete", "persistentvolume", disk.NAME, "--ignore-not-found", "--timeout=60s")
    disk.create()
    values = (
        "kafka.replicas=3,kafka.resources.requests.cpu=20m"
        f",object-store.persistence.existingClaim={disk.NAME}"
    )
    options = ["--set", values]
    for name in ("console-values.yaml", "tls-scram-values.yaml"):
        options += ["--values", str(CHART / "ci" / name)]
    for key, value in _SECURED_CONSOLE.items():
        options += ["--set-json", f"{key}={json.dumps(value)}"]
    yield install(cluster, *options, secured=True, first=disk.volume(NAMESPACE))
    clear(cluster)
    cluster.run("delete", "persistentvolume", disk.NAME, "--timeout=60s")
    disk.remove()


def install(
    cluster: Cluster,
    *options: str,
    secured: bool = False,
    first: Sequence[Object] = (),
    others: Sequence[str] = (),
) -> Platform:
    """Install the platform in a clean namespace that enforces `restricted`.

    Args:
        cluster: the cluster.
        options: options of `helm install`.
        secured: whether the options switch TLS and logins on.
        first: objects that the namespace has before the installation.
        others: namespaces to create besides.
    """
    helm.vendor()
    clear(cluster)
    for name in (NAMESPACE, *others):
        cluster.run("create", "namespace", name)
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.run("label", "namespace", NAMESPACE, label)
    if first:
        cluster.apply(*first)
    cluster.helm("install", RELEASE, str(CHART), "--wait", "--timeout", "10m", *options)
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


@pytest.fixture(scope="session")
def feed(platform: Platform, lines: Iterator[bytes]) -> Feed:
    """Return a function that feeds both jobs their next input."""
    seeds = itertools.count(1)

    def feed_next() -> None:
        platform.feed(list(itertools.islice(lines, LINES)))
        platform.generate(RECORDS, next(seeds))

    return feed_next


@pytest.fixture(scope="session")
def jobs(platform: Platform, feed: Feed) -> Platform:
    """Return the platform with both jobs running: one without and one with an executor."""
    for job in ("ip_count", "two_sinks"):
        platform.command("targets", job)
    feed()
    platform.cluster.apply(ip_count(platform), two_sinks(platform))
    return platform


def wait_both_exact(platform: Platform) -> None:
    """Wait until both jobs have read all input, with each record once in each sink."""
    platform.wait_exact("ip_count", "ip-count")
    platform.wait_exact("two_sinks", "two-sinks")


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
