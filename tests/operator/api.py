"""What tests of the operator do with a real API server, in few words. Called by tests."""

import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from infra.embedded.kubernetes import ADMIN, KubernetesServer
from sluicegate_operator.resources.declaring import GROUP, VERSION
from sluicegate_operator.resources.kinds import KINDS, STREAMING_JOB, Kind

Object = dict[str, Any]
Found = TypeVar("Found")

_AS_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_MERGE: Final = "application/merge-patch+json"
_numbers: Final = itertools.count(1)


@dataclass(frozen=True)
class Refusal:
    """The API server's answer to what it does not accept."""

    status: int
    message: str


@dataclass
class Api:
    """An API server with our kinds, as one user."""

    server: KubernetesServer
    user: str = ADMIN
    client: client.ApiClient = field(init=False)

    def __post_init__(self) -> None:
        """Open nothing yet."""
        kubeconfig = str(self.server.kubeconfig(self.user))
        self.client = config.new_client_from_config(kubeconfig)
        self.core = client.CoreV1Api(self.client)
        self.custom = client.CustomObjectsApi(self.client)
        self.extensions = client.ApiextensionsV1Api(self.client)

    def namespace(self) -> str:
        """Make a namespace that nobody uses, with the account that a controller would put there."""
        name = f"test-{next(_numbers)}"
        self.core.create_namespace({"metadata": {"name": name}})
        self.core.create_namespaced_service_account(name, {"metadata": {"name": "default"}})
        return name

    def define(self, kinds: tuple[Kind, ...] = KINDS) -> None:
        """Define our kinds, and return when they are served."""
        for kind in kinds:
            self.extensions.create_custom_resource_definition(kind.definition())
        for kind in kinds:
            eventually(lambda kind=kind: self._established(kind))

    def _established(self, kind: Kind) -> bool:
        found = self.extensions.read_custom_resource_definition(f"{kind.plural}.{GROUP}")
        conditions = found.status.conditions or [] if found.status else []
        return any(c.type == "Established" and c.status == "True" for c in conditions)

    # ---- our kinds, as dictionaries

    def create(
        self, namespace: str, name: str, spec: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Make a resource."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind.name,
            "metadata": {"name": name},
            "spec": dict(spec),
        }
        return self._found(
            self.custom.create_namespaced_custom_object(
                GROUP, VERSION, namespace, kind.plural, body, field_validation="Strict"
            )
        )

    def get(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> Object:
        """Read a resource."""
        return self._found(
            self.custom.get_namespaced_custom_object(GROUP, VERSION, namespace, kind.plural, name)
        )

    def change(
        self, namespace: str, name: str, change: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Merge a change into a resource: None takes a field away."""
        return self._found(
            self.custom.patch_namespaced_custom_object(
                GROUP, VERSION, namespace, kind.plural, name, dict(change), _content_type=_MERGE
            )
        )

    def change_status(
        self, namespace: str, name: str, status: Mapping[str, Any], kind: Kind = STREAMING_JOB
    ) -> Object:
        """Merge into a resource's status, by the subresource."""
        return self._found(
            self.custom.patch_namespaced_custom_object_status(
                GROUP,
                VERSION,
                namespace,
                kind.plural,
                name,
                {"status": dict(status)},
                _content_type=_MERGE,
            )
        )

    def delete(self, namespace: str, name: str, kind: Kind = STREAMING_JOB) -> None:
        """Delete a resource."""
        self.custom.delete_namespaced_custom_object(GROUP, VERSION, namespace, kind.plural, name)

    def table(self, namespace: str, kind: Kind = STREAMING_JOB) -> Object:
        """Return what `kubectl get` shows of a kind: the API's Table."""
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind.plural}"
        return self.raw("GET", path, {"Accept": _AS_TABLE})

    def raw(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Object:
        """Send a request; return the answer's JSON."""
        asked = {"Authorization": f"Bearer {self.server.token(self.user)}", **(headers or {})}
        answer = self.client.rest_client.request(method, self.server.url + path, headers=asked)
        return self._found(json.loads(answer.read()))

    # ---- pods

    def pod(self, namespace: str, name: str, **labels: str) -> Object:
        """Make a driver's pod of our labels; names of labels with `_` for `-`."""
        known = {f"sluicegate.dev/{key.replace('_', '-')}": text for key, text in labels.items()}
        container = {"name": "driver", "image": "none", "command": ["true"]}
        return self.make_pod(
            namespace,
            {
                "metadata": {"name": name, "labels": known},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        )

    def make_pod(self, namespace: str, body: Object) -> Object:
        """Make a pod; return it as a dictionary."""
        made = self.core.create_namespaced_pod(namespace, body)
        return self._found(self.client.sanitize_for_serialization(made))

    def get_pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod as a dictionary; None: there is none."""
        try:
            found = self.core.read_namespaced_pod(name, namespace)
        except ApiException as error:
            if error.status != 404:
                raise
            return None
        return self._found(self.client.sanitize_for_serialization(found))

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

    @staticmethod
    def _found(answer: object) -> Object:
        assert isinstance(answer, dict)
        return answer


def refused(work: Callable[[], object]) -> Refusal:
    """Return the API server's refusal; fail if it accepts."""
    try:
        accepted = work()
    except ApiException as error:
        return Refusal(error.status or 0, str(json.loads(error.body or "{}").get("message", "")))
    raise AssertionError(f"it was accepted: {accepted}")


def eventually(look: Callable[[], Found], *, within_s: float = 20.0) -> Found:
    """Look again and again until there is something; return it. Fail when it takes too long."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s; the last look gave {found!r}")
        time.sleep(0.02)
