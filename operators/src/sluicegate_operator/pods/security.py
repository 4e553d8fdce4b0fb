"""What the `restricted` pod security standard asks for, and a root that cannot be written to.

Source: kubernetes.io/docs/concepts/security/pod-security-standards. Called by `driver` and
`executors`, as defaults: a template may say otherwise.
"""

from __future__ import annotations

from typing import Any


def pod_security() -> dict[str, Any]:
    """Return a pod's securityContext. Which user it is, is the image's matter."""
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def container_security() -> dict[str, Any]:
    """Return a container's securityContext."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
