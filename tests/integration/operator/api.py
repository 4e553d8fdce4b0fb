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

T = TypeVar("T")

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
        response: Object = json.loads(answer.read())
        if answer.status >= 400:
            raise ApiRejection(answer.status, str(response.get("message", response)))
        return response

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
        crd = self.request("GET", f"{_DEFINITIONS}/{kind.plural}.{GROUP}")
        conditions = crd.get("status", {}).get("conditions") or ()
        return {"True"} == {c["status"] for c in conditions if c["type"] == "Established"}

    # --- resources of sluicegate.dev

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
        return self.request("POST", f"{_path(kind, namespace)}?fieldValidation=Strict", body)

    def get(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Read a resource."""
        return self.request("GET", _path(kind, namespace, name))

    def change(
        self, namespace: str, name: str, change: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Apply a merge patch to a resource; None removes a field."""
        return self.request("PATCH", _path(kind, namespace, name), change, content=MERGE)

    def change_status(
        self, namespace: str, name: str, status: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Apply a merge patch to a resource's status."""
        path = f"{_path(kind, namespace, name)}/status"
        return self.request("PATCH", path, {"status": status}, content=MERGE)

    def clear_status(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Remove a resource's status."""
        path = f"{_path(kind, namespace, name)}/status"
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
        return self.request("DELETE", _path(kind, namespace, name))

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
        listed = self.request("GET", f"/api/v1/namespaces/{namespace}/events")
        events: list[Object] = listed["items"]
        return events

    def table(self, namespace: str, kind: Kind = STREAMING_JOB) -> Object:
        """Return the Table that `kubectl get` prints."""
        return self.request("GET", _path(kind, namespace), accept=_AS_TABLE)

    # --- resources of the core API

    def create_core(self, namespace: str, plural: str, body: Mapping[str, Any]) -> Object:
        """Create an object, such as a pod or a Secret."""
        return self.request("POST", f"/api/v1/namespaces/{namespace}/{plural}", body)

    def pod(self, namespace: str, name: str, *finalizers: str, **labels: str) -> Object:
        """Create a driver's pod with our labels, such as `job="orders", attempt="1"`."""
        label_values = {f"sluicegate.dev/{key}": text for key, text in labels.items()}
        container = {"name": "driver", "image": "none", "command": ["true"]}
        metadata = {"name": name, "labels": label_values, "finalizers": list(finalizers)}
        spec = {"restartPolicy": "Never", "containers": [container]}
        return self.create_core(namespace, "pods", {"metadata": metadata, "spec": spec})

    def get_pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod, or None."""
        try:
            return self.request("GET", _pod_path(namespace, name))
        except ApiRejection as refusal:
            if refusal.status != 404:
                raise
            return None

    def pods(self, namespace: str) -> list[str]:
        """Return the names of the pods."""
        listed = self.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        return [item["metadata"]["name"] for item in listed["items"]]

    def change_pod(self, namespace: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a merge patch to a pod."""
        return self.request("PATCH", _pod_path(namespace, name), change, content=MERGE)

    def delete_pod(self, namespace: str, name: str, grace_s: int = 30) -> Object:
        """Delete a pod; its object is removed when its kubelet has stopped it."""
        return self.request("DELETE", _pod_path(namespace, name), {"gracePeriodSeconds": grace_s})

    def evict(self, namespace: str, name: str) -> Object:
        """Evict a pod, as `kubectl drain` does."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        return self.request("POST", f"{_pod_path(namespace, name)}/eviction", body)

    def pod_when(
        self,
        namespace: str,
        name: str,
        condition: Callable[[Object], object],
        *,
        within_s: float = 20.0,
    ) -> Object:
        """Wait until a condition holds for a pod; return the pod."""

        def poll() -> Object | None:
            pod = self.get_pod(namespace, name)
            return pod if pod is not None and condition(pod) else None

        return eventually(poll, within_s=within_s)


_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind.plural}"
    return f"{path}/{name}" if name else path


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def rejection(request: Callable[[], object]) -> ApiRejection:
    """Return the API server's error; fail if the request is accepted."""
    try:
        accepted = request()
    except ApiRejection as error:
        return error
    raise AssertionError(f"the request was accepted: {accepted}")


def eventually(poll: Callable[[], T | None], *, within_s: float = 60.0) -> T:
    """Poll until the result is true and return it; fail after a timeout."""
    deadline = time.monotonic() + within_s
    while True:
        result = poll()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s; the last result was {result!r}")
        time.sleep(0.02)
