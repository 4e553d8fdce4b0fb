"""What tests of the operator do with a real API server, in few words: objects are dictionaries.

The official client brings the requests there, by the kubeconfig that people use too; its typed
models stay out, as tests write what a user writes. Called by tests.
"""

import itertools
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from kubernetes import client, config

from infra.embedded.kubernetes import ADMIN, KubernetesServer
from sluicegate_operator.resources.declaring import GROUP, VERSION
from sluicegate_operator.resources.kinds import KINDS, STREAMING_JOB, Kind
from tests.operator.rest import MERGE, Object, Refused

Found = TypeVar("Found")

_AS_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_numbers: Final = itertools.count(1)


class _Answer(Protocol):
    """What the client's transport answers with."""

    status: int

    def read(self) -> bytes: ...


class Api:
    """An API server with our kinds, as one user.

    Args:
        server: it runs.
        user: one of its users.
    """

    def __init__(self, server: KubernetesServer, user: str = ADMIN) -> None:
        """Open nothing yet."""
        self.server: Final = server
        self.client: Final[client.ApiClient] = config.new_client_from_config(  # type: ignore[no-untyped-call]
            str(server.kubeconfig(user))
        )
        self._headers = {"Authorization": f"Bearer {server.token(user)}"}

    def ask(
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
            Refused: the answer is an error.
        """
        headers = {**self._headers, "Content-Type": content, "Accept": accept}
        answer: _Answer = self.client.rest_client.request(  # type: ignore[no-untyped-call]
            method, self.server.url + path, headers=headers, body=body
        )
        found: Object = json.loads(answer.read())
        if answer.status >= 400:
            raise Refused(answer.status, str(found.get("message", found)))
        return found

    def namespace(self) -> str:
        """Make a namespace that nobody uses, with the account that a controller would put there."""
        name = f"test-{next(_numbers)}"
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.make(name, "serviceaccounts", {"metadata": {"name": "default"}})
        return name

    def define(self, kinds: tuple[Kind, ...] = KINDS) -> None:
        """Define our kinds, and return when they are served."""
        for kind in kinds:
            self.ask("POST", _DEFINITIONS, kind.definition())
        eventually(lambda: all(self._established(kind) for kind in kinds))

    def _established(self, kind: Kind) -> bool:
        found = self.ask("GET", f"{_DEFINITIONS}/{kind.plural}.{GROUP}")
        conditions = found.get("status", {}).get("conditions") or ()
        return {"True"} == {c["status"] for c in conditions if c["type"] == "Established"}

    # ---- our kinds

    def create(
        self, namespace: str, name: str, spec: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Make a resource, as strictly as `kubectl apply` does: a field that is not known is refused."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind.name,
            "metadata": {"name": name},
            "spec": spec,
        }
        return self.ask("POST", f"{_of(kind, namespace)}?fieldValidation=Strict", body)

    def get(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Read a resource."""
        return self.ask("GET", _of(kind, namespace, name))

    def change(
        self, namespace: str, name: str, change: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Merge a change into a resource: None takes a field away."""
        return self.ask("PATCH", _of(kind, namespace, name), change, content=MERGE)

    def change_status(
        self, namespace: str, name: str, status: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Merge into a resource's status, by the subresource."""
        path = f"{_of(kind, namespace, name)}/status"
        return self.ask("PATCH", path, {"status": status}, content=MERGE)

    def wipe_status(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Take a resource's status away."""
        path = f"{_of(kind, namespace, name)}/status"
        return self.ask("PATCH", path, {"status": None}, content=MERGE)

    def forget_lease(self, namespace: str, name: str = "sluicegate-operator") -> None:
        """Remove an operator's lease, if it has one: it has died, and its time is up."""
        try:
            self.ask("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
        except Refused as refusal:
            if refusal.status != 404:
                raise

    def delete(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Delete a resource."""
        return self.ask("DELETE", _of(kind, namespace, name))

    def exists(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> bool:
        """Say whether a resource is there."""
        try:
            self.get(namespace, name, kind)
        except Refused as refusal:
            if refusal.status != 404:
                raise
            return False
        return True

    def events(self, namespace: str) -> list[Object]:
        """Return a namespace's events."""
        found: list[Object] = self.ask("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return found

    def table(self, namespace: str, kind: Kind = STREAMING_JOB) -> Object:
        """Return what `kubectl get` shows of a kind: the API's Table."""
        return self.ask("GET", _of(kind, namespace), accept=_AS_TABLE)

    # ---- Kubernetes' own, of the core API

    def make(self, namespace: str, plural: str, body: Mapping[str, Any]) -> Object:
        """Make an object: a pod, a secret, ..."""
        return self.ask("POST", f"/api/v1/namespaces/{namespace}/{plural}", body)

    def pod(self, namespace: str, name: str, *finalizers: str, **labels: str) -> Object:
        """Make a driver's pod of our labels: `job="orders", attempt="1"`."""
        known = {f"sluicegate.dev/{key}": text for key, text in labels.items()}
        container = {"name": "driver", "image": "none", "command": ["true"]}
        meta = {"name": name, "labels": known, "finalizers": list(finalizers)}
        spec = {"restartPolicy": "Never", "containers": [container]}
        return self.make(namespace, "pods", {"metadata": meta, "spec": spec})

    def get_pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod; None: there is none."""
        try:
            return self.ask("GET", _pod(namespace, name))
        except Refused as refusal:
            if refusal.status != 404:
                raise
            return None

    def pods(self, namespace: str) -> list[str]:
        """Return names of pods."""
        found = self.ask("GET", f"/api/v1/namespaces/{namespace}/pods")
        return [item["metadata"]["name"] for item in found["items"]]

    def change_pod(self, namespace: str, name: str, change: Mapping[str, Any]) -> Object:
        """Merge a change into a pod."""
        return self.ask("PATCH", _pod(namespace, name), change, content=MERGE)

    def delete_pod(self, namespace: str, name: str, grace_s: int = 30) -> Object:
        """Delete a pod: it ends when its kubelet has seen to it."""
        return self.ask("DELETE", _pod(namespace, name), {"gracePeriodSeconds": grace_s})

    def evict(self, namespace: str, name: str) -> Object:
        """Evict a pod, as a drain does."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        return self.ask("POST", f"{_pod(namespace, name)}/eviction", body)

    def pod_when(
        self,
        namespace: str,
        name: str,
        true: Callable[[Object], object],
        *,
        within_s: float = 20.0,
    ) -> Object:
        """Wait until something is true of a pod; return it."""

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


def refused(work: Callable[[], object]) -> Refused:
    """Return the API server's refusal; fail if it accepts."""
    try:
        accepted = work()
    except Refused as refusal:
        return refusal
    raise AssertionError(f"it was accepted: {accepted}")


def eventually(look: Callable[[], Found | None], *, within_s: float = 60.0) -> Found:
    """Look again and again until there is something; return it. Fail when it takes too long."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s; the last look gave {found!r}")
        time.sleep(0.02)
