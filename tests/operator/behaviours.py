"""How the containers of a scripted kubelet go: a small table that a test writes.

Not here: acting on it (`kubelet`). Called by tests.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

JOB: Final = "sluicegate.dev/job"
ATTEMPT: Final = "sluicegate.dev/attempt"

KILLED: Final = 137
"""The exit code of a container that SIGKILL ended."""


@dataclass(frozen=True)
class Behaviour:
    """How one pod goes; all times in seconds.

    Args:
        starts_after_s: from its node until its container runs.
        runs_s: until the container ends by itself; None: never.
        exit_code: when it ends by itself.
        message: its termination message then.
        stops_after_s: from SIGTERM until it ends; None: it takes no notice and is killed (137) when
            its grace is over.
        stop_exit_code: when it ends by SIGTERM.
        stop_message: its termination message then.
        waiting: why its container never runs, such as `ImagePullBackOff`.
        unschedulable: no node takes it.
        progress_every_s: it reports an epoch in its annotation as often; None: never.
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


RUNS: Final = Behaviour()
"""It runs for ever, and ends at once with 0 when it is asked to."""
NO_IMAGE: Final = Behaviour(waiting="ImagePullBackOff")
NO_NODE: Final = Behaviour(unschedulable=True)
DEAF: Final = Behaviour(stops_after_s=None)
"""It runs for ever, also when it is asked to stop."""


def ends(code: int, message: str = "", *, after_s: float = 0.0) -> Behaviour:
    """Return the behaviour of a container that ends by itself."""
    return Behaviour(runs_s=after_s, exit_code=code, message=message)


@dataclass
class Script:
    """Behaviours by job and attempt; what is not said goes like `otherwise`."""

    otherwise: Behaviour = RUNS
    _said: dict[str, dict[int, Behaviour]] = field(default_factory=lambda: defaultdict(dict))
    _then: dict[str, Behaviour] = field(default_factory=dict)

    def plan(self, job: str, *attempts: Behaviour, then: Behaviour | None = None) -> None:
        """Say how a job's attempts go, from the first; `then` is for all that follow."""
        self._said[job] = dict(enumerate(attempts, start=1))
        self._then[job] = then or self.otherwise

    def attempt(self, job: str, number: int, behaviour: Behaviour) -> None:
        """Say how one attempt goes."""
        self._said[job][number] = behaviour

    def of(self, pod: dict[str, Any]) -> Behaviour:
        """Return how a pod goes, by its labels; one without an attempt is the first."""
        labels = pod["metadata"].get("labels", {})
        job = labels.get(JOB, "")
        said = self._said.get(job, {}).get(int(labels.get(ATTEMPT, "1")))
        return said or self._then.get(job, self.otherwise)
