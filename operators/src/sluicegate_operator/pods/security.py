"""Security settings that driver and executor pods share: pod security, and a custom CA for the store.

The defaults meet the `restricted` standard of
kubernetes.io/docs/concepts/security/pod-security-standards, with a read-only root file system on top; a
template may change them. If the object store's certificate is signed by a custom CA, its bundle (not a
key) is mounted and a variable names it.
"""

from __future__ import annotations

from typing import Any

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import CA_FILE_VARIABLE, CA_KEY

_NAME = "sluicegate-authority"
_FOLDER = "/etc/sluicegate-authority"


def authority_variables(volume: CheckpointVolumeSpec) -> list[dict[str, Any]]:
    """Return the variable that names the CA bundle, if there is one; a template may name another file."""
    if not volume.authority_secret:
        return []
    return [{"name": CA_FILE_VARIABLE, "value": f"{_FOLDER}/{CA_KEY}"}]


def authority_volumes(volume: CheckpointVolumeSpec) -> list[dict[str, Any]]:
    """Return the pod volume with the CA bundle, if there is one."""
    if not volume.authority_secret:
        return []
    items = [{"key": CA_KEY, "path": CA_KEY}]
    return [{"name": _NAME, "secret": {"secretName": volume.authority_secret, "items": items}}]


def authority_mounts(volume: CheckpointVolumeSpec) -> list[dict[str, Any]]:
    """Return the mount of the CA bundle, if there is one."""
    if not volume.authority_secret:
        return []
    return [{"name": _NAME, "mountPath": _FOLDER, "readOnly": True}]


def pod_security() -> dict[str, Any]:
    """Return the securityContext of a pod. The image decides which user it runs as."""
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def container_security() -> dict[str, Any]:
    """Return the securityContext of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
