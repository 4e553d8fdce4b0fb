"""What the actions of `reconcile` are at the API server. Each may be done twice.

Not here: that the status was written first (`service.jobs`). Called by `service.jobs`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of
from sluicegate_operator.cluster.objects import SeenPod
from sluicegate_operator.cluster.writing import delete_pod, release_pod

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pods:
    """Drivers' pods: made, deleted, let go.

    Args:
        api: the API server.
        seen: returns a pod of the view by namespace and name, or None.
        took: told of each pod as a write has returned it.
    """

    api: Api
    seen: Callable[[tuple[str, str]], SeenPod | None]
    took: Callable[[Json], None]

    async def create(self, pod: Json, config: Json | None = None) -> None:
        """Create a driver's pod, and before it the map that its executors' template is in.

        Raises:
            ApiError: it was refused; or a pod of that name belongs to another job.
        """
        if config is not None:
            await self._create("configmaps", config)
        self.took(await self._create("pods", pod))

    async def stop(self, namespace: str, name: str, uid: str, grace_s: float) -> None:
        """Ask a driver to end."""
        await delete_pod(self.api, namespace, name, uid, grace_s)

    async def release(self, namespace: str, name: str, uid: str) -> None:
        """Take our finalizer off a pod."""
        seen = self.seen((namespace, name))
        if seen is None or seen.pod.uid != uid or not seen.pod.held:
            return
        after = await release_pod(self.api, namespace, name, seen.finalizers)
        if after is not None:
            self.took(after)

    async def drop(self, namespace: str, name: str, uid: str) -> None:
        """Delete a pod that is dead or given up, and take our finalizer off."""
        await delete_pod(self.api, namespace, name, uid)
        await self.release(namespace, name, uid)

    async def _create(self, plural: str, thing: Json) -> Json:
        """Create an object of a job; one that is there is success if it is of the same job."""
        meta = thing["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        try:
            return await self.api.request("POST", path_of(plural, namespace), thing)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            there = await self.api.request("GET", path_of(plural, namespace, name))
            owners = there["metadata"].get("ownerReferences") or []
            ours = meta["ownerReferences"][0]["uid"]
            if not any(owner["uid"] == ours for owner in owners):
                raise ApiError(
                    error.status,
                    "NameTaken",
                    f"{plural} {namespace}/{name} is there and belongs to another job; "
                    "it has to go first",
                ) from error
            return there
