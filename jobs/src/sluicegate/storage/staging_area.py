"""Staged chunks that are too large for the epoch record.

An object is named `staging/N/<attempt>/<sink>/<part>-<task>-<task attempt>-<sequence>`. It is
created once, and two attempts never share one (rule 8). Executors write them, an apply reads them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from sluicegate.errors import EpochLogBroken, StageFailed
from sluicegate.protocol.record import Chunk
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

_NAME = re.compile(r"staging/(\d+)/([^/]+)/.")


class StagingArea:
    """The `staging/` folder of a checkpoint."""

    def __init__(self, checkpoint: ObjectStore) -> None:
        self._store = checkpoint

    def write(self, epoch: int, attempt: str, tail: str, content: bytes) -> str:
        """Store a chunk and return its name; two attempts can never have the same one."""
        name = f"staging/{epoch}/{attempt}/{tail}"
        # our own if the reply to the first request was lost and the client repeated it
        if not self._store.create(name, content) and self._store.read(name) != content:
            raise StageFailed(
                f"staged chunk {name} exists already with other content",
                data="the epoch is undecided and nothing of it is visible",
                do="restart the driver; report a bug if it happens again",
            )
        return name

    def read(self, chunk: Chunk) -> bytes:
        """Return a chunk's bytes; raises EpochLogBroken if the object is missing or has changed."""
        if chunk.inline is not None:
            return chunk.inline
        stored = self._store.read(chunk.name or "")
        if stored is None:
            raise EpochLogBroken(
                f"staged chunk {chunk.name} of a decided epoch is missing",
                data="the epoch is decided but cannot be applied; nothing of it was written",
                do="restore the object from the store's object versions or a backup",
            )
        return chunk.verify(stored)

    def sweep(
        self,
        decided_attempt: Callable[[int], str | None],
        *,
        retained: AbstractSet[int],
        newest: int,
    ) -> None:
        """Remove everything of pruned epochs, and the attempts that lost at a decided one.

        A record may hold megabytes of rows, so it is read only if several attempts have chunks. The only
        attempt that has chunks is the decided one, or it stays as long as the record.

        Args:
            decided_attempt: returns the attempt whose chunks stay; may raise EpochLogBroken, then all stay.
            retained: the epochs whose record is kept.
            newest: later epochs are not touched: a running driver may be staging them.
        """
        staged: dict[int, dict[str, list[str]]] = {}
        for name in self._store.names("staging/"):
            found = _NAME.match(name)
            if found is not None and int(found[1]) <= newest:  # other names are somebody else's
                staged.setdefault(int(found[1]), {}).setdefault(found[2], []).append(name)
        for epoch, attempts in staged.items():
            if epoch in retained and len(attempts) == 1:
                continue
            try:
                winner = decided_attempt(epoch) if epoch in retained else None
            except EpochLogBroken as error:
                log.warning("the staged chunks of epoch %d stay: %s", epoch, error)
                continue
            for attempt, names in attempts.items():
                if attempt != winner:
                    for name in names:
                        self._store.delete(name)
