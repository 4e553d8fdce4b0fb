"""Writes of single objects. A change fails if the object is no longer the one that was read.

Each returns the object that the server stored, for the cache.
"""

from __future__ import annotations

from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import Json, Meta, ResourceType


async def create_unless_exists(api: Api, resource_type: ResourceType, body: Json) -> Json | None:
    """Create an object and return it; None: there is one of that name, perhaps of another job."""
    try:
        return await api.request("POST", resource_type.path(body["metadata"]["namespace"]), body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        return None


async def create_or_get(api: Api, resource_type: ResourceType, body: Json) -> Json:
    """Create an object and return it, or the existing one of that name: the caller compares the owners."""
    created = await create_unless_exists(api, resource_type, body)
    if created is not None:
        return created
    meta = body["metadata"]
    return await api.request("GET", resource_type.path(meta["namespace"], meta["name"]))


async def write_status(api: Api, resource_type: ResourceType, meta: Meta, status: Json) -> Json:
    """Write a status.

    Raises:
        ApiError: the object has changed (conflict), and nothing was written; or see `Api.request`.
    """
    body = {**resource_type.type_meta, "metadata": meta.identity, "status": status}
    path = resource_type.path(meta.namespace, meta.name, sub="status")
    return await api.request("PUT", path, body)


async def write_finalizers(
    api: Api, resource_type: ResourceType, meta: Meta, *, add: str = "", remove: str = ""
) -> Json:
    """Add or remove a finalizer.

    Raises:
        ApiError: the object has changed (conflict), and nothing was written; or see `Api.request`.
    """
    kept = [one for one in meta.finalizers if one != remove]
    if add and add not in kept:
        kept.append(add)
    path = resource_type.path(meta.namespace, meta.name)
    body = {"uid": meta.uid, "resourceVersion": meta.version, "finalizers": kept}
    return await api.patch(path, {"metadata": body})


async def patch_object(
    api: Api, resource_type: ResourceType, namespace: str, name: str, uid: str, metadata: Json
) -> Json | None:
    """Merge a patch into the metadata of an object with this UID; None if it is gone or was replaced."""
    try:
        path = resource_type.path(namespace, name)
        return await api.patch(path, {"metadata": {**metadata, "uid": uid}})
    except ApiError as error:
        if not (error.missing or error.conflict):
            raise
        return None


async def delete_object(
    api: Api,
    resource_type: ResourceType,
    namespace: str,
    name: str,
    uid: str,
    grace_period_s: float | None = None,
) -> None:
    """Delete an object with this UID. It succeeds if the object is gone or has been replaced."""
    options: Json = {"preconditions": {"uid": uid}}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = int(grace_period_s)
    await _delete(api, resource_type.path(namespace, name), options)


async def delete_version(api: Api, resource_type: ResourceType, meta: Meta) -> bool:
    """Delete an object unless it has changed since it was read; return whether it was deleted."""
    preconditions = {"uid": meta.uid, "resourceVersion": meta.version}
    path = resource_type.path(meta.namespace, meta.name)
    return await _delete(api, path, {"preconditions": preconditions})


async def _delete(api: Api, path: str, options: Json) -> bool:
    """Delete an object; return False if it is gone, or not the one of the preconditions."""
    try:
        await api.request("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
    except ApiError as error:
        if not (error.missing or error.conflict):
            raise
        return False
    return True


async def remove_finalizer(
    api: Api,
    resource_type: ResourceType,
    namespace: str,
    name: str,
    finalizers: tuple[str, ...],
    finalizer: str,
) -> Json | None:
    """Remove one of an object's finalizers, whatever else of the object has changed.

    `finalizers` are all of them, as they were read. Returns None if the object is gone.

    Raises:
        ApiError: its finalizers have changed, and nothing was written; or see `Api.request`.
    """
    path = f"/metadata/finalizers/{finalizers.index(finalizer)}"
    steps = [{"op": "test", "path": path, "value": finalizer}, {"op": "remove", "path": path}]
    kind = "application/json-patch+json"
    try:
        return await api.request(
            "PATCH", resource_type.path(namespace, name), steps, content_type=kind
        )
    except ApiError as error:
        if error.missing:
            return None
        raise
