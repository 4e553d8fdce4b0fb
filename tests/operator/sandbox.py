"""What the kubelet's stand-in knows of a node and of a pod that it runs, and how a container ended.

Not here: what it does about them (`kubelet`). Called by it and by `process_kubelet`.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from tests.operator.behaviours import KILLED
from tests.operator.rest import Object


@dataclass(frozen=True)
class Ended:
    """How a container ended."""

    exit_code: int
    message: str = ""
    reason: str = ""
    """Instead of Completed or Error."""


NEVER_RAN: Final = Ended(KILLED, reason="ContainerStatusUnknown")
"""What a kubelet says of a container that was not there when its pod was deleted."""


class CannotStart(Exception):
    """A container cannot be made: its pod waits, with this reason and message."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.reason = reason


@dataclass
class NodeState:
    """What the kubelet knows of a node of its own."""

    name: str
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while nothing of it reaches the API server, nor back."""
    destroyed: bool = False


class Sandbox:
    """One pod on its way: its newest object, and what has happened to it."""

    def __init__(self, pod: Object) -> None:
        """Take in the pod."""
        self.deleted: Final = asyncio.Event()
        self.sigterm: Final = asyncio.Event()
        """Set when its container has been asked to stop."""
        self.node: NodeState | None = None
        self.task: asyncio.Task[None] | None = None
        self.see(pod)

    def see(self, pod: Object) -> None:
        """Take in a newer object."""
        self.pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            self.deleted.set()

    @property
    def path(self) -> str:
        """Of the pod, in the API."""
        there = self.pod["metadata"]
        return f"/api/v1/namespaces/{there['namespace']}/pods/{there['name']}"

    @property
    def uid(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["uid"])

    @property
    def grace_s(self) -> float:
        """Given to its container when it is deleted."""
        return float(self.pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    @property
    def over(self) -> bool:
        """Whether its containers have ended."""
        return self.pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
