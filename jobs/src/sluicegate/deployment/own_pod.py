"""The pod that this process runs in: a driver annotates it, and a standby watches it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from sluicegate.deployment.api_server import MERGE_PATCH, ApiServer
from sluicegate.deployment.environment import DriverVariable

_REQUEST_S = 5.0

_WATCH_S = 300
"""After this time the API server ends a watch, and a new one reads the token again."""


@dataclass(frozen=True)
class OwnPod:
    """The pod that this process runs in.

    Args:
        api: the API server.
        namespace: namespace of the pod.
        name: name of the pod.
        uid: UID of the pod, so that a later pod of the same name is left alone; empty: not checked.
    """

    api: ApiServer
    namespace: str
    name: str
    uid: str

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> OwnPod | None:
        """Return the pod that the environment names; None outside of a pod."""
        env = os.environ if environment is None else environment
        api = ApiServer.of_pod("sluicegate-driver", env)
        name, namespace = env.get(DriverVariable.POD_NAME), env.get(DriverVariable.POD_NAMESPACE)
        if not (api and name and namespace):
            return None
        return cls(api, namespace, name, env.get(DriverVariable.POD_UID, ""))

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation; for errors see `ApiServer.request`."""
        metadata: dict[str, object] = {"annotations": {key: value}}
        if self.uid:
            metadata["uid"] = self.uid  # the API server rejects a patch that would change it
        self.api.request(
            "PATCH",
            f"{self._pods}/{quote(self.name)}",
            {"metadata": metadata},
            content_type=MERGE_PATCH,
            timeout_s=_REQUEST_S,
        )

    def watch_annotations(self) -> Iterator[Mapping[str, str]]:
        """Yield the annotations now and after each change, until the API server ends the watch.

        It ends each watch after some minutes. Nothing is yielded if the pod is gone or was replaced.
        For errors see `ApiServer.watch`.
        """
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self.name}",
            "timeoutSeconds": _WATCH_S,
        }
        for pod in self.api.watch(f"{self._pods}?{urlencode(query)}", _WATCH_S + _REQUEST_S):
            metadata = pod["metadata"]
            if self.uid in ("", metadata["uid"]):
                yield metadata.get("annotations") or {}

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/pods"
