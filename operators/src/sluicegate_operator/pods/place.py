"""Where a driver works: what is resolved of its CheckpointVolume and Savepoint for one pod.

Not here: looking them up, and whether they are ready. Called by whoever performs `CreateDriver`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.resources.volume import CheckpointVolumeSpec


@dataclass(frozen=True)
class Place:
    """A checkpoint and the volume that it is on.

    Args:
        checkpoint: its address.
        volume: how the store is reached.
        restore_from: address of the savepoint that the checkpoint begins with, on the same store;
            '': none.
    """

    checkpoint: str
    volume: CheckpointVolumeSpec
    restore_from: str = ""
