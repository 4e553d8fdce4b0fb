"""Grants the permissions of an install, as the operator's chart renders them, to the tests' operator."""

import copy
import functools
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra import manifests
from infra.toolchain import go_programs
from tests.integration.charts.rendering import vendored_charts
from tests.integration.operator.api import Api

OPERATOR: Final = f"system:serviceaccount:{manifests.NAMESPACE}:{manifests.NAME}"
"""User name of the operator's ServiceAccount at the API server."""

_DRIVER_NAMESPACE: Final = "default"
_PLURALS: Final = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}


def grant_everywhere(api: Api) -> None:
    """Grant the operator its permissions in all namespaces, except for its lease."""
    for body in _rendered():
        if body["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            create(api, body)


def grant_lease(api: Api, namespace: str) -> None:
    """Grant the operator its lease in a test's namespace."""
    for body in _rendered(manifests.NAMESPACE):
        if body["kind"] in ("Role", "RoleBinding"):
            body["metadata"]["namespace"] = namespace
            create(api, body, f"namespaces/{namespace}/")


def grant_driver(api: Api, namespace: str) -> None:
    """Create the ServiceAccount of drivers and its permissions in a namespace."""
    for body in _rendered(_DRIVER_NAMESPACE):
        body["metadata"]["namespace"] = namespace
        for subject in body.get("subjects", ()):
            subject["namespace"] = namespace
        if body["kind"] == "ServiceAccount":
            api.create_core(namespace, "serviceaccounts", body)
        else:
            create(api, body, f"namespaces/{namespace}/")


def _rendered(namespace: str = "") -> list[dict[str, Any]]:
    """Return the manifests of a namespace; by default those of the cluster."""
    bodies = (body for body in _manifests() if body["metadata"].get("namespace", "") == namespace)
    return [copy.deepcopy(body) for body in bodies]


@functools.cache
def _manifests() -> tuple[dict[str, Any], ...]:
    """Render the chart, or skip the test if helm is missing."""
    if reason := go_programs.tool_missing_reason("helm"):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as folder:
        charts = vendored_charts(Path(folder))
        text = manifests.render(manifests.values_of((), drivers=[_DRIVER_NAMESPACE]), charts.folder)
    return tuple(body for body in yaml.safe_load_all(text) if body)


def create(api: Api, body: dict[str, Any], prefix: str = "") -> None:
    """Create a manifest of RBAC; `prefix` names its namespace, such as `namespaces/shop/`."""
    plural = _PLURALS[body["kind"]]
    api.request("POST", f"/apis/rbac.authorization.k8s.io/v1/{prefix}{plural}", body)
