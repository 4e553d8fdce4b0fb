"""The rights of an install (operators/deploy), given to the operator of the tests. Called by tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.operator.api import Api

OPERATOR: Final = "system:serviceaccount:sluicegate-system:sluicegate-operator"
"""The user that a pod of the operator is to the API server."""

_DEPLOY: Final = Path(__file__).parents[2] / "operators" / "deploy"
_PLURALS: Final = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}


def grant_everywhere(api: Api) -> None:
    """Give the operator its rights in all namespaces, but for its lease."""
    for thing in _things("base/rights.yaml", "overlays/cluster/rights.yaml"):
        if thing["kind"].startswith("Cluster"):
            _make(api, thing)


def grant_lease(api: Api, namespace: str) -> None:
    """Let the operator have its lease in a namespace of a test."""
    for thing in _things("base/rights.yaml"):
        if not thing["kind"].startswith("Cluster"):
            thing["metadata"]["namespace"] = namespace
            _make(api, thing, f"namespaces/{namespace}/")


def grant_driver(api: Api, namespace: str) -> None:
    """Give drivers in a namespace their account and its rights."""
    for thing in _things("job/driver.yaml"):
        thing["metadata"]["namespace"] = namespace
        for subject in thing.get("subjects", ()):
            subject["namespace"] = namespace
        if thing["kind"] == "ServiceAccount":
            api.make(namespace, "serviceaccounts", thing)
        else:
            _make(api, thing, f"namespaces/{namespace}/")


def _things(*files: str) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from yaml.safe_load_all((_DEPLOY / file).read_text(encoding="utf-8"))


def _make(api: Api, thing: dict[str, Any], where: str = "") -> None:
    plural = _PLURALS[thing["kind"]]
    api.ask("POST", f"/apis/rbac.authorization.k8s.io/v1/{where}{plural}", thing)
