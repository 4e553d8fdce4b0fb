"""What people do with a StreamingJob: suspend, resume, restart, savepoint. Pure.

`kubectl sluicegate` and the console make the same changes, which are defined here once.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

API = "sluicegate.dev/v1alpha1"
"""Group and version of the resources."""
JOBS, SAVEPOINTS = "streamingjobs", "savepoints"
"""The plural names of the resources."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


class Action(enum.StrEnum):
    """What a person does with a job."""

    SAVEPOINT = "savepoint"
    """Copies the checkpoint; the job goes on."""
    SUSPEND = "suspend"
    """Stops the driver at the end of its epoch; the job keeps its checkpoint."""
    RESUME = "resume"
    """Starts a suspended job again."""
    RESTART = "restart"
    """Replaces the driver at the end of its epoch; a failed job starts again."""

    @property
    def disruptive(self) -> bool:
        """Whether a running driver ends."""
        return self in (Action.SUSPEND, Action.RESTART)


@dataclass(frozen=True)
class JobName:
    """The name of a StreamingJob."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> JobName | None:
        """Return the name in `namespace/name`, None if Kubernetes allows no such name."""
        namespace, _, name = text.partition("/")
        valid = _LABEL.fullmatch(namespace) and is_name(name)
        return cls(namespace, name) if valid else None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_name(text: str) -> bool:
    """Return whether Kubernetes allows a text as the name of a resource."""
    return _NAME.fullmatch(text) is not None


def spec_change(action: Action, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return how an action changes the spec of a StreamingJob; empty for a savepoint.

    Args:
        action: what is done.
        job: the resource as it is.
    """
    match action:
        case Action.SUSPEND:
            return {"suspend": True}
        case Action.RESUME:
            return {"suspend": False}
        case Action.RESTART:
            return {"restartNonce": (job.get("spec") or {}).get("restartNonce", 0) + 1}
        case Action.SAVEPOINT:
            return {}


def savepoint_name(job: str, now: dt.datetime) -> str:
    """Return the name of a Savepoint that is taken now."""
    return f"{job}-{now:%Y%m%d-%H%M%S}"


def savepoint_manifest(name: str, job: str, *, stop: bool = False) -> dict[str, Any]:
    """Return a Savepoint.

    Args:
        name: its name.
        job: name of the StreamingJob.
        stop: whether the job ends with it and its checkpoint is sealed, so that a new job can take over.
    """
    return {
        "apiVersion": API,
        "kind": "Savepoint",
        "metadata": {"name": name},
        "spec": {"job": job, **({"stop": True} if stop else {})},
    }


def patch_arguments(job: str, spec: Mapping[str, Any]) -> list[str]:
    """Return the arguments of kubectl that change the spec of a job."""
    patch = json.dumps({"spec": spec})
    return ["patch", f"{JOBS}.{API.partition('/')[0]}", job, "--type=merge", f"--patch={patch}"]


def plugin_command(command: str, job: JobName) -> str:
    """Return the command of the kubectl plugin that does an action, or another of its commands."""
    return shlex.join(["kubectl", "sluicegate", "-n", job.namespace, command, job.name])


def kubectl_command(job: JobName, spec: Mapping[str, Any]) -> str:
    """Return the command of kubectl alone that changes the spec of a job."""
    return shlex.join(["kubectl", "-n", job.namespace, *patch_arguments(job.name, spec)])
