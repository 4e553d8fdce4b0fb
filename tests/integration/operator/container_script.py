"""How the containers of a scripted kubelet behave."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

JOB: Final = "sluicegate.dev/job"
ATTEMPT: Final = "sluicegate.dev/attempt"

KILLED: Final = 137
"""Exit code of a container that SIGKILL ended."""


@dataclass(frozen=True)
class Behavior:
    """How one pod behaves; all times in seconds.

    Args:
        starts_after_s: from its binding to a node until its container runs.
        runs_s: until the container ends by itself; None: never.
        exit_code: when it ends by itself.
        message: its termination message in that case.
        stops_after_s: from SIGTERM until it ends; None: it ignores SIGTERM and is killed (137) after
            its grace period.
        stop_exit_code: when SIGTERM ends it.
        stop_message: its termination message in that case.
        waiting: why its container never runs, such as `ImagePullBackOff`.
        unschedulable: the pod is never bound to a node.
        progress_every_s: interval at which it reports an epoch in its annotation; None: never.
    """

    starts_after_s: float = 0.0
    runs_s: float | None = None
    exit_code: int = 0
    message: str = ""
    stops_after_s: float | None = 0.0
    stop_exit_code: int = 0
    stop_message: str = ""
    waiting: str = ""
    unschedulable: bool = False
    progress_every_s: float | None = None


RUNS: Final = Behavior()
"""It runs until it is stopped, and then exits with 0 at once."""
NO_IMAGE: Final = Behavior(waiting="ImagePullBackOff")
NO_NODE: Final = Behavior(unschedulable=True)
IGNORES_SIGTERM: Final = Behavior(stops_after_s=None)
"""It runs until it is killed."""


def ends(code: int, message: str = "", *, after_s: float = 0.0) -> Behavior:
    """Return the behavior of a container that ends by itself."""
    return Behavior(runs_s=after_s, exit_code=code, message=message)


@dataclass
class Script:
    """Behaviors by job and attempt, and a default for all others."""

    default: Behavior = RUNS
    _by_attempt: dict[str, dict[int, Behavior]] = field(default_factory=lambda: defaultdict(dict))
    _afterwards: dict[str, Behavior] = field(default_factory=dict)

    def plan(self, job: str, *attempts: Behavior, then: Behavior | None = None) -> None:
        """Set the behavior of a job's attempts, from the first; `then` applies to all that follow."""
        self._by_attempt[job] = dict(enumerate(attempts, start=1))
        self._afterwards[job] = then or self.default

    def attempt(self, job: str, number: int, behavior: Behavior) -> None:
        """Set the behavior of one attempt."""
        self._by_attempt[job][number] = behavior

    def behavior_of(self, pod: dict[str, Any]) -> Behavior:
        """Return the behavior of a pod by its labels; a pod without an attempt label is attempt 1."""
        labels = pod["metadata"].get("labels", {})
        job = labels.get(JOB, "")
        behavior = self._by_attempt.get(job, {}).get(int(labels.get(ATTEMPT, "1")))
        return behavior or self._afterwards.get(job, self.default)
