"""An uninstall leaves only retained resources. It runs last because it removes the platform."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import CommandFailed, eventually
from tests.e2e.manifests import ip_count
from tests.e2e.platform import CLIENT_POD, NAMESPACE, RELEASE, Platform

KINDS = (
    "pods,services,statefulsets,deployments,jobs,configmaps,networkpolicies,roles,rolebindings,"
    "poddisruptionbudgets"
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_an_uninstall_is_refused_while_jobs_exist(platform: Platform) -> None:
    """Without an operator nothing would stop them."""
    platform.cluster.apply(ip_count(platform, "still-there", suspend=True))
    with pytest.raises(CommandFailed):
        platform.cluster.helm("uninstall", RELEASE, "--timeout", "60s")
    selector = f"app.kubernetes.io/instance={RELEASE}"
    assert platform.cluster.list_objects("statefulsets", selector), "the servers were removed"
    platform.cluster.run("delete", "streamingjob", "still-there", "--timeout=120s")


def test_only_claims_and_crds_remain(platform: Platform) -> None:
    cluster = platform.cluster
    cluster.run("delete", "pod", CLIENT_POD, "--wait=false")
    cluster.run("delete", "savepoints", "--all", "--timeout=120s", timeout_s=130.0)
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "5m")
    selector = f"app.kubernetes.io/instance={RELEASE}"
    eventually(
        lambda: not cluster.list_objects(KINDS, selector),
        "nothing of the release to be left",
        within_s=60.0,
    )
    claims = {claim["metadata"]["name"] for claim in cluster.list_objects("pvc", selector)}
    assert claims == {f"data-{RELEASE}-{part}-0" for part in ("kafka", "mysql", "object-store")}
    crds = cluster.run("get", "crd", "-o", "name")
    assert "streamingjobs.sluicegate.dev" in crds
    eventually(
        lambda: not platform.operators.list_objects("pods,deployments,roles", selector),
        "no operator to be left",
        within_s=60.0,
    )
    # remove retained resources as documented, so that the next run starts clean
    cluster.run("delete", "pvc", "-l", selector, "--timeout=120s", timeout_s=130.0)
    cluster.run("delete", "namespace", NAMESPACE, "--timeout=180s", timeout_s=190.0)
