"""Synchronous client of a real API server for tests. Objects are dictionaries.

It uses the transport of the official client and a kubeconfig, but not the client's typed models: tests write
what users write.
"""

import itertools
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from kubernetes import client, config

from infra.local_services.kube_apiserver import ADMIN, KubernetesServer
from sluicegate_operator.api.crds import KINDS, STREAMING_JOB, Kind
from sluicegate_operator.api.fields import GROUP, VERSION
from tests.integration.operator.rest_client import MERGE, ApiRejection, Object

Found = TypeVar("Found")

_AS_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_numbers: Final = itertools.count(1)


class _Answer(Protocol):
    """Response of the client's transport."""

    status: int

    def read(self) -> bytes: ...


class Api:
    """Access to an API server as one user.

    Args:
        server: a running server.
        user: one of its users.
    """

    def __init__(self, server: KubernetesServer, user: str = ADMIN) -> None:
        """Read the kubeconfig; no connection is opened yet."""
        self.server: Final = server
        self.client: Final[client.ApiClient] = config.new_client_from_config(  # type: ignore[no-untyped-call]
            str(server.kubeconfig(user))
        )
        self._headers = {"Authorization": f"Bearer {server.token(user)}"}

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        """Send a request and return the answer.

        Raises:
            ApiRejection: the answer is an error.
        """
        headers = {**self._headers, "Content-Type": content, "Accept": accept}
        answer: _Answer = self.client.rest_client.request(  # type: ignore[no-untyped-call]
            method, self.server.url + path, headers=headers, body=body
        )
        found: Object = json.loads(answer.read())
        if answer.status >= 400:
            raise ApiRejection(answer.status, str(found.get("message", found)))
        return found

    def namespace(self) -> str:
        """Create a new namespace with the default ServiceAccount, which a controller would create."""
        name = f"test-{next(_numbers)}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.create_core(name, "serviceaccounts", {"metadata": {"name": "default"}})
        return name

    def install_crds(self, kinds: tuple[Kind, ...] = KINDS) -> None:
        """Create the CustomResourceDefinitions and wait until they are served."""
        for kind in kinds:
            self.request("POST", _DEFINITIONS, kind.definition())
        eventually(lambda: all(self._established(kind) for kind in kinds))

    def _established(self, kind: Kind) -> bool:
        found = self.request("GET", f"{_DEFINITIONS}/{kind.plural}.{GROUP}")
        conditions = found.get("status", {}).get("conditions") or ()
        return {"True"} == {c["status"] for c in conditions if c["type"] == "Established"}

    # ---- resources of sluicegate.dev

    def create(
        self, namespace: str, name: str, spec: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Create a resource with strict validation, as `kubectl apply` does: unknown fields are rejected."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind.name,
            "metadata": {"name": name},
            "spec": spec,
        }
        return self.request("POST", f"{_of(kind, namespace)}?fieldValidation=Strict", body)

    def get(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Read a resource."""
        return self.request("GET", _of(kind, namespace, name))

    def change(
        self, namespace: str, name: str, change: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Apply a merge patch to a resource; None removes a field."""
        return self.request("PATCH", _of(kind, namespace, name), change, content=MERGE)

    def change_status(
        self, namespace: str, name: str, status: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Apply a merge patch to a resource's status."""
        path = f"{_of(kind, namespace, name)}/status"
        return self.request("PATCH", path, {"status": status}, content=MERGE)

    def clear_status(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Remove a resource's status."""
        path = f"{_of(kind, namespace, name)}/status"
        return self.request("PATCH", path, {"status": None}, content=MERGE)

    def delete_lease(self, namespace: str, name: str = "sluicegate-operator") -> None:
        """Delete an operator's lease, as if the operator had died and the lease had expired."""
        try:
            self.request(
                "DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
            )
        except ApiRejection as refusal:
            if refusal.status != 404:
                raise

    def delete(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Delete a resource."""
        return self.request("DELETE", _of(kind, namespace, name))

    def exists(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> bool:
        """Return whether a resource exists."""
        try:
            self.get(namespace, name, kind)
        except ApiRejection as refusal:
            if refusal.status != 404:
                raise
            return False
        return True

    def events(self, namespace: str) -> list[Object]:
        """Return the Events of a namespace."""
        found: list[Object] = self.request("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return found

    def table(self, namespace: str, kind: Kind = STREAMING_JOB) -> Object:
        """Return the Table that `kubectl get` prints."""
        return self.request("GET", _of(kind, namespace), accept=_AS_TABLE)

    # ---- resources of the core API

    def create_core(self, namespace: str, plural: str, body: Mapping[str, Any]) -> Object:
        """Create an object, such as a pod or a Secret."""
        return self.request("POST", f"/api/v1/namespaces/{namespace}/{plural}", body)

    def pod(self, namespace: str, name: str, *finalizers: str, **labels: str) -> Object:
        """Create a driver's pod with labels of ours, such as `job="orders", attempt="1"`."""
        known = {f"sluicegate.dev/{key}": text for key, text in labels.items()}
        container = {"name": "driver", "image": "none", "command": ["true"]}
        meta = {"name": name, "labels": known, "finalizers": list(finalizers)}
        spec = {"restartPolicy": "Never", "containers": [container]}
        return self.create_core(namespace, "pods", {"metadata": meta, "spec": spec})

    def get_pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod, or None."""
        try:
            return self.request("GET", _pod(namespace, name))
        except ApiRejection as refusal:
            if refusal.status != 404:
                raise
            return None

    def pods(self, namespace: str) -> list[str]:
        """Return the names of the pods."""
        found = self.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        return [item["metadata"]["name"] for item in found["items"]]

    def change_pod(self, namespace: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a merge patch to a pod."""
        return self.request("PATCH", _pod(namespace, name), change, content=MERGE)

    def delete_pod(self, namespace: str, name: str, grace_s: int = 30) -> Object:
        """Delete a pod. It is gone when its kubelet has stopped it."""
        return self.request("DELETE", _pod(namespace, name), {"gracePeriodSeconds": grace_s})

    def evict(self, namespace: str, name: str) -> Object:
        """Evict a pod, as `kubectl drain` does."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        return self.request("POST", f"{_pod(namespace, name)}/eviction", body)

    def pod_when(
        self,
        namespace: str,
        name: str,
        true: Callable[[Object], object],
        *,
        within_s: float = 20.0,
    ) -> Object:
        """Wait until a condition holds for a pod; return the pod."""

        def look() -> Object | None:
            found = self.get_pod(namespace, name)
            return found if found is not None and true(found) else None

        return eventually(look, within_s=within_s)


_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _of(kind: Kind, namespace: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind.plural}"
    return f"{path}/{name}" if name else path


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def rejection(work: Callable[[], object]) -> ApiRejection:
    """Return the API server's error; fail if the request is accepted."""
    try:
        accepted = work()
    except ApiRejection as error:
        return error
    raise AssertionError(f"the request was accepted: {accepted}")


def eventually(look: Callable[[], Found | None], *, within_s: float = 60.0) -> Found:
    """Poll until the result is true and return it; fail after a timeout."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s; the last result was {found!r}")
        time.sleep(0.02)
