"""An uninstall leaves nothing but what was to be retained. Last: the platform is gone after it."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import CommandFailed, eventually
from tests.e2e.manifests import ip_count
from tests.e2e.platform import DESK, NAMESPACE, RELEASE, Platform

KINDS = (
    "pods,services,statefulsets,deployments,jobs,configmaps,networkpolicies,roles,rolebindings,"
    "poddisruptionbudgets"
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_it_is_refused_while_there_are_jobs(platform: Platform) -> None:
    """Without an operator nobody could end them."""
    platform.cluster.apply(ip_count(platform, "still-there", suspend=True))
    with pytest.raises(CommandFailed):
        platform.cluster.helm("uninstall", RELEASE, "--timeout", "60s")
    platform.cluster.run("delete", "streamingjob", "still-there", "--timeout=120s")


def test_claims_and_kinds_are_what_is_left(platform: Platform) -> None:
    cluster = platform.cluster
    cluster.run("delete", "pod", DESK, "--wait=false")
    cluster.run("delete", "savepoints", "--all", "--timeout=120s", timeout_s=130.0)
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "5m")
    mine = f"app.kubernetes.io/instance={RELEASE}"
    eventually(
        lambda: not cluster.listed(KINDS, mine), "nothing of the release to be left", within_s=60.0
    )
    claims = {claim["metadata"]["name"] for claim in cluster.listed("pvc", mine)}
    assert claims == {f"data-{RELEASE}-{part}-0" for part in ("kafka", "mysql", "object-store")}
    known = cluster.run("get", "crd", "-o", "name")
    assert "streamingjobs.sluicegate.dev" in known
    # what was retained is removed as the page says, so that a next run begins with nothing
    cluster.run("delete", "pvc", "-l", mine, "--timeout=120s", timeout_s=130.0)
    cluster.run("delete", "namespace", NAMESPACE, "--timeout=180s", timeout_s=190.0)
