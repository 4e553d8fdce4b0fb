"""What the actions of `reconcile` are at the API server. Each may be done twice.

Not here: that the status was written first (`service.jobs`). Called by `service.jobs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of
from sluicegate_operator.cluster.objects import SeenPod
from sluicegate_operator.cluster.writing import delete_pod, release_pod


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

    async def create(self, pod: Json) -> None:
        """Create a driver's pod; one that is there is success if it is of the same job.

        Raises:
            ApiError: it was refused; or a pod of that name belongs to another job.
        """
        meta = pod["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        try:
            made = await self.api.request("POST", path_of("pods", namespace), pod)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            made = await self.api.request("GET", path_of("pods", namespace, name))
            owners = made["metadata"].get("ownerReferences") or []
            if not any(one["uid"] == meta["ownerReferences"][0]["uid"] for one in owners):
                raise ApiError(
                    error.status,
                    "NameTaken",
                    f"pod {namespace}/{name} is there and belongs to another job; it has to go first",
                ) from error
        self.took(made)

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
