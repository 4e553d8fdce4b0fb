"""State of the simulated kubelet: its nodes, the pods on them, and how their containers ended."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from tests.integration.operator.container_script import KILLED
from tests.integration.operator.rest_client import Object


@dataclass(frozen=True)
class ContainerEnd:
    """How a container ended; `reason` replaces Completed or Error."""

    exit_code: int
    message: str = ""
    reason: str = ""


NEVER_STARTED: Final = ContainerEnd(KILLED, reason="ContainerStatusUnknown")
"""What a kubelet reports of a container that did not exist when its pod was deleted."""


class CannotStart(Exception):
    """A container cannot be created: its pod waits, with this reason and message."""

    def __init__(self, reason: str, message: str) -> None:
        """Store both."""
        super().__init__(message)
        self.reason = reason


@dataclass
class NodeState:
    """A node of the kubelet."""

    name: str
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while the node is disconnected from the API server."""
    destroyed: bool = False


class Sandbox:
    """One pod: its newest object, and what has happened to it."""

    def __init__(self, pod: Object) -> None:
        """Start with the pod's current object."""
        self.deleted: Final = asyncio.Event()
        self.sigterm: Final = asyncio.Event()
        """Set when its container receives SIGTERM."""
        self.node: NodeState | None = None
        self.task: asyncio.Task[None] | None = None
        self.pod = pod
        self.update(pod)

    def update(self, pod: Object) -> None:
        """Store an object, unless a newer one is stored: a watch may be ahead of an answer."""
        if self._version(pod) < self._version(self.pod):
            return
        self.pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            self.deleted.set()

    @staticmethod
    def _version(pod: Object) -> int:
        """Return the version of an object; etcd counts them up (KEP-5504)."""
        return int(pod["metadata"]["resourceVersion"])

    @property
    def path(self) -> str:
        """Path of the pod in the API."""
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    @property
    def uid(self) -> str:
        """Uid of the pod."""
        return str(self.pod["metadata"]["uid"])

    @property
    def grace_s(self) -> float:
        """Grace period of its deletion."""
        return float(self.pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    @property
    def ended(self) -> bool:
        """Whether its containers have ended."""
        return self.pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
