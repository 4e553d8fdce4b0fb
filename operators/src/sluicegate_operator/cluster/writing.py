"""Writes of one object each, all under what was read: a status, finalizers, a pod's end.

What is written comes back as the object that it became, for the view. Not here: which writes
(`performing`). Called by `performing` and `service`.
"""

from __future__ import annotations

from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of
from sluicegate_operator.cluster.objects import Meta
from sluicegate_operator.resources.declaring import GROUP, VERSION
from sluicegate_operator.resources.marks import DRIVER_FINALIZER
from sluicegate_operator.resources.parsing import render


async def write_status(api: Api, kind: str, plural: str, meta: Meta, status: object) -> Json:
    """Write a status, if the resource is still the one that was read.

    Raises:
        ApiError: a conflict: it is another by now, and nothing was written.
    """
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": _identity(meta),
        "status": render(status),
    }
    return await api.request("PUT", path_of(plural, meta.namespace, meta.name, sub="status"), body)


async def write_finalizers(
    api: Api, plural: str, meta: Meta, *, add: str = "", remove: str = ""
) -> Json:
    """Add or remove a finalizer, if the resource is still the one that was read."""
    kept = [one for one in meta.finalizers if one != remove]
    if add and add not in kept:
        kept.append(add)
    path = path_of(plural, meta.namespace, meta.name)
    body = {"uid": meta.uid, "resourceVersion": meta.version, "finalizers": kept}
    return await api.patch(path, {"metadata": body})


async def delete_pod(
    api: Api, namespace: str, name: str, uid: str, grace_s: float | None = None
) -> None:
    """Delete a pod, if its uid is still this; that it is gone, or another, is success."""
    body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    if grace_s is not None:
        body["gracePeriodSeconds"] = int(grace_s)
    try:
        await api.request("DELETE", path_of("pods", namespace, name), body)
    except ApiError as error:
        if not (error.missing or error.conflict):
            raise


async def release_pod(
    api: Api, namespace: str, name: str, finalizers: tuple[str, ...]
) -> Json | None:
    """Take our finalizer off a pod, of those that were seen; None if it is gone already.

    Raises:
        ApiError: its finalizers are others by now; nothing was written.
    """
    path = f"/metadata/finalizers/{finalizers.index(DRIVER_FINALIZER)}"
    steps = [
        {"op": "test", "path": path, "value": DRIVER_FINALIZER},
        {"op": "remove", "path": path},
    ]
    kind = "application/json-patch+json"
    try:
        return await api.request(
            "PATCH", path_of("pods", namespace, name), steps, content_type=kind
        )
    except ApiError as error:
        if error.missing:
            return None
        raise


def _identity(meta: Meta) -> Json:
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.version,
    }
