"""Writes of drivers' pods. Each may be repeated."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.api.labels import DRIVER_FINALIZER
from sluicegate_operator.controllers.caches import Cache
from sluicegate_operator.controllers.decode import DriverPod
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import PODS, Json
from sluicegate_operator.kube.writes import delete_object, remove_finalizer


@dataclass(frozen=True)
class DriverPods:
    """Creates, deletes and releases drivers' pods, and keeps the cache up to date with each answer."""

    api: Api
    cache: Cache[DriverPod]

    async def create(self, pod: Json) -> None:
        """Create a driver's pod; an existing one of the same job counts as success.

        Raises:
            ApiError: the request was refused, or a pod of that name belongs to another job.
        """
        meta = pod["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        try:
            created = await self.api.request("POST", PODS.path(namespace), pod)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            created = await self.api.request("GET", PODS.path(namespace, name))
            owners = created["metadata"].get("ownerReferences") or []
            if not any(one["uid"] == meta["ownerReferences"][0]["uid"] for one in owners):
                raise ApiError(
                    error.status,
                    "NameTaken",
                    f"pod {namespace}/{name} already exists and belongs to another job; delete it",
                ) from error
        self.cache.put(created)

    async def stop(self, namespace: str, name: str, uid: str, grace_s: float) -> None:
        """Delete a pod, so that its driver shuts down within the grace period."""
        await delete_object(self.api, PODS, namespace, name, uid, grace_s)

    async def release(self, namespace: str, name: str, uid: str) -> None:
        """Remove our finalizer from a pod."""
        cached = self.cache.get((namespace, name))
        if cached is None or cached.pod.uid != uid or not cached.pod.has_finalizer:
            return
        after = await remove_finalizer(
            self.api, PODS, namespace, name, cached.finalizers, DRIVER_FINALIZER
        )
        if after is not None:
            self.cache.put(after)

    async def delete(self, namespace: str, name: str, uid: str) -> None:
        """Delete a pod that is dead or abandoned, and remove our finalizer."""
        await delete_object(self.api, PODS, namespace, name, uid)
        await self.release(namespace, name, uid)
