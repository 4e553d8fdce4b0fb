"""Staged chunks that are too large to travel inside the epoch record.

Names: `staging/N/<attempt>/<sink>/<part>-<task>-<task attempt>-<sequence>`; each is created once
and never shared by two tries (rule 8). Written by executors, read by appliers.
"""

from __future__ import annotations

from collections.abc import Callable

from sluicegate.protocol.errors import EpochLogBroken, StageFailed
from sluicegate.protocol.record import Chunk
from sluicegate.storage.objects import Objects


class StagingArea:
    """The `staging/` folder of a checkpoint volume."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def write(self, epoch: int, attempt: str, tail: str, content: bytes) -> str:
        """Store a chunk and return its name.

        Raises:
            StageFailed: the name is taken, which no two tries can cause; the try is given up.
        """
        name = f"staging/{epoch}/{attempt}/{tail}"
        if not self._objects.create(name, content):
            raise StageFailed(
                f"staged chunk {name} is there already",
                data="the epoch is undecided and nothing of it is visible",
                do="restart the driver; if it happens again, report it",
            )
        return name

    def read(self, chunk: Chunk) -> bytes:
        """Return a chunk's bytes, checked against what was decided.

        Raises:
            EpochLogBroken: the object is gone or changed.
        """
        if chunk.inline is not None:
            return chunk.inline
        stored = self._objects.read(chunk.name or "")
        if stored is None:
            raise EpochLogBroken(
                f"staged chunk {chunk.name} of a decided epoch is gone",
                data="the epoch is decided and cannot be applied; nothing was written from it",
                do="restore the object from the store's versions or a backup",
            )
        return chunk.verify(stored)

    def sweep(self, decided: Callable[[int], str | None], *, newest: int) -> None:
        """Remove the tries of decided epochs that lost, and everything of pruned epochs.

        Args:
            decided: a kept epoch's attempt, whose chunks stay; None of any other. Asked once for
                each epoch that has something staged.
            newest: nothing above is touched: a living driver may be staging there.
        """
        stays: dict[int, str | None] = {}
        for name in self._objects.names("staging/"):
            _, number, attempt, *_ = name.split("/")
            epoch = int(number)
            if epoch > newest:
                continue
            if epoch not in stays:
                stays[epoch] = decided(epoch)
            if stays[epoch] != attempt:
                self._objects.delete(name)
