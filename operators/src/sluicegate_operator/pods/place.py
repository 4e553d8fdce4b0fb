"""Where a driver's checkpoint is: what is resolved of a CheckpointVolume for one pod.

Not here: looking the volume up, and whether it is ready. Called by whoever performs `CreateDriver`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.volume import CheckpointVolumeSpec


@dataclass(frozen=True)
class Place:
    """A checkpoint and the store that it is on.

    Args:
        checkpoint: its address.
        region: of the bucket.
        endpoint: of the store; '': Amazon's, by region.
        credentials_secret: a Secret in the job's namespace; '': the pod's own identity.
        restore_from: address of the savepoint that the checkpoint begins with, on the same store;
            '': none.
    """

    checkpoint: str
    region: str = "us-east-1"
    endpoint: str = ""
    credentials_secret: str = ""
    restore_from: str = ""


def place_of(
    job: str,
    spec: StreamingJobSpec,
    volume: CheckpointVolumeSpec,
    checkpoint_number: int,
    restore_from: str = "",
) -> Place:
    """Return where a driver works.

    Args:
        job: the StreamingJob's name.
        spec: its spec.
        volume: of the CheckpointVolume that it names.
        checkpoint_number: of its status.
        restore_from: address of a savepoint, or ''.
    """
    return Place(
        checkpoint=checkpoint_address(job, spec, volume, checkpoint_number),
        region=volume.region,
        endpoint=volume.endpoint,
        credentials_secret=volume.credentials_secret,
        restore_from=restore_from,
    )


def checkpoint_address(
    job: str, spec: StreamingJobSpec, volume: CheckpointVolumeSpec, number: int
) -> str:
    """Return `s3://BUCKET/PREFIX/PATH/N`; PATH is the job's name if it has none of its own."""
    parts = (volume.bucket, volume.prefix, spec.checkpoint.path or job, str(number))
    return "s3://" + "/".join(part.strip("/") for part in parts if part.strip("/"))
