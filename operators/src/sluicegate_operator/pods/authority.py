"""Whom a job's pods trust when the store's certificate is of an authority of its own.

Its certificate, not its key, is mounted; a variable names it. Called by `driver`, `executors` and
`environment`.
"""

from __future__ import annotations

from typing import Any

from sluicegate_operator.resources.addresses import AUTHORITY, AUTHORITY_VARIABLE
from sluicegate_operator.resources.volume import CheckpointVolumeSpec

_NAME = "sluicegate-authority"
_FOLDER = "/etc/sluicegate-authority"


def authority_variables(volume: CheckpointVolumeSpec) -> list[dict[str, Any]]:
    """Return a container's variables for it: one, or none. A template may name a file of its own."""
    if not volume.authority_secret:
        return []
    return [{"name": AUTHORITY_VARIABLE, "value": f"{_FOLDER}/{AUTHORITY}"}]


def authority_volumes(volume: CheckpointVolumeSpec) -> list[dict[str, Any]]:
    """Return a pod's volumes for it: one, or none."""
    if not volume.authority_secret:
        return []
    items = [{"key": AUTHORITY, "path": AUTHORITY}]
    return [{"name": _NAME, "secret": {"secretName": volume.authority_secret, "items": items}}]


def authority_mounts(volume: CheckpointVolumeSpec) -> list[dict[str, Any]]:
    """Return a container's mounts for it: one, or none."""
    if not volume.authority_secret:
        return []
    return [{"name": _NAME, "mountPath": _FOLDER, "readOnly": True}]
