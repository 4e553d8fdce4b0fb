"""What the steps of a pass over a savepoint share. Not here: any rule. Called by those steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate_operator.resources.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.volumes.observed import Savepoint, SavepointObserved, VolumeView
from sluicegate_operator.volumes.passes import Pass


@dataclass
class SavepointPass(Pass[SavepointStatus]):
    """A pass over a savepoint; `trying`: one is being taken now; `waiting`: why it is not."""

    savepoint: Savepoint = field(kw_only=True)
    seen: SavepointObserved = field(kw_only=True)
    trying: bool = False
    waiting: tuple[str, str] | None = None

    @property
    def spec(self) -> SavepointSpec:
        """What the user wants."""
        return self.savepoint.spec

    @property
    def source(self) -> VolumeView | None:
        """The volume of the job's checkpoint, if it is in view."""
        job = self.seen.job
        return None if job is None else self.seen.volumes.get(job.spec.checkpoint.volume)

    @property
    def target(self) -> VolumeView | None:
        """The volume that is copied to, if it is in view; once chosen it stays, also without the job."""
        name = self.status.volume or self.spec.volume
        return self.seen.volumes.get(name) if name else self.source

    def wait(self, reason: str, message: str) -> None:
        """Say what is waited for."""
        self.waiting = (reason, message)

    def no_target(self) -> tuple[str, str]:
        """Say why there is no volume to copy to."""
        name = self.status.volume or self.spec.volume
        if not name and self.seen.job is None:
            return "JobMissing", f"there is no StreamingJob {self.spec.job}, nor spec.volume"
        if not name and self.seen.job is not None:
            name = self.seen.job.spec.checkpoint.volume
        return "VolumeMissing", f"there is no CheckpointVolume {name}"
