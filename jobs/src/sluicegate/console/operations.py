"""What people can do about a job, as commands, and which StreamingJob a checkpoint is of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.console.model import JobFacts
from sluicegate.deployment.job_actions import Action, JobName, plugin_command
from sluicegate.storage.driver_start import DEAD_LETTERS, JOB

EFFECTS = {
    Action.SAVEPOINT: "Copies the checkpoint. The job goes on.",
    Action.SUSPEND: "Stops the driver at the end of its epoch. The job keeps its checkpoint.",
    Action.RESUME: "Starts the suspended job again.",
    Action.RESTART: "Replaces the driver at the end of its epoch. A failed job starts again.",
}
"""What each action does, for people."""

_TOPIC = "topic "


@dataclass(frozen=True)
class Operation:
    """Something to do about a job, with its effect and its command."""

    name: str
    effect: str
    command: str


def streaming_job(job: JobFacts) -> JobName | None:
    """Return the StreamingJob that the last driver recorded, None if it recorded none.

    A writer of the checkpoint can record any name, so it gives nobody a right.
    """
    return JobName.parse(job.starts[0].settings.get(JOB, "")) if job.starts else None


def operations(job: JobFacts) -> list[Operation]:
    """Return what can be done about a job from a shell."""
    name = streaming_job(job)
    found = []
    if name is not None:
        found = [
            Operation(action, effect, plugin_command(action, name))
            for action, effect in EFFECTS.items()
        ]
        found.append(
            Operation(
                "move",
                "Takes a savepoint, suspends the job and seals its checkpoint, so that a new job "
                "takes over.",
                f"{plugin_command(Action.SAVEPOINT, name)} --stop",
            )
        )
        found.append(
            Operation(
                "Spark's UI",
                "Forwards a local port to the UI of the running driver, if the job's sparkConf has "
                "spark.ui.enabled.",
                plugin_command("spark-ui", name),
            )
        )
    if topic := dead_letter_topic(job):
        found.append(
            Operation(
                "replay dead letters",
                "Says which records would be sent to the job again; with --yes it sends them.",
                f"sluicegate dead-letters replay {topic} --kafka BROKERS",
            )
        )
    return found


def dead_letter_topic(job: JobFacts) -> str:
    """Return the topic of a job's dead letters, empty if it has none or none is recorded."""
    sink = job.starts[0].settings.get(DEAD_LETTERS, "") if job.starts else ""
    binding = job.newest.sinks.get(sink) if job.newest else None
    target = binding.target if binding else ""
    return target.removeprefix(_TOPIC) if target.startswith(_TOPIC) else ""


def works_in(resource: Mapping[str, Any], address: str) -> bool:
    """Return whether a StreamingJob works in the checkpoint at an address.

    The operator puts it below the volume at the job's path, `spec.checkpoint.path` or its name, and
    its number.
    """
    path = ((resource.get("spec") or {}).get("checkpoint") or {}).get("path", "").strip("/")
    number = ((resource.get("status") or {}).get("checkpoint") or {}).get("number", 1)
    end = f"/{path or resource['metadata']['name']}/{number}"
    return f"/{address.strip('/')}".endswith(end)
