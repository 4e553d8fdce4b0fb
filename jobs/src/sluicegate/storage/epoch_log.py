"""The epoch log and Spark's offset log on a checkpoint volume.

Names: `epochs/N` is the record that decides epoch N, or the seal that ends the lineage there;
`epochs/N.applied` says that a driver ended well with it; `epochs/N.discard/<sink>` tells an apply to
leave the rows of a sink out (rule 14); `epochs/N.claimed/<sink>/<part>` is the one try that executors
have at a part, at-most-once; `offsets/N` is Spark's. Callers: the coordinator by its ports,
savepoints, and the CLI.
"""

from __future__ import annotations

import hashlib
import logging

from sluicegate.protocol.errors import StoreUnavailable
from sluicegate.protocol.record import EpochRecord, decode, encode
from sluicegate.protocol.seal import Seal, decode_seal, encode_seal, is_seal
from sluicegate.storage.objects import Objects
from sluicegate.storage.staging import StagingArea

log = logging.getLogger(__name__)

DEFAULT_RETAINED = 100
"""Epochs kept, as Spark's spark.sql.streaming.minBatchesToRetain."""

_TIDY_EVERY = 10
"""Tidying lists the whole log, so it is done every so many epochs."""


class StoredEpochLog:
    """`ports.EpochLog` on objects.

    Args:
        objects: the checkpoint volume.
        retained: how many epochs are kept; at least as many as Spark keeps offsets.
    """

    def __init__(self, objects: Objects, *, retained: int = DEFAULT_RETAINED) -> None:
        self._objects = objects
        self._staging = StagingArea(objects)
        self._retained = retained
        self._tidied: int | None = None

    def create(self, record: EpochRecord) -> bool:
        return self._objects.create(f"epochs/{record.epoch}", encode(record))

    def read(self, epoch: int) -> EpochRecord | None:
        found = self.read_any(epoch)
        if isinstance(found, Seal):
            raise found.error()
        return found

    def create_seal(self, seal: Seal) -> bool:
        return self._objects.create(f"epochs/{seal.epoch}", encode_seal(seal))

    def read_any(self, epoch: int) -> Seal | EpochRecord | None:
        stored = self._objects.read(f"epochs/{epoch}")
        if stored is None:
            return None
        return decode_seal(stored) if is_seal(stored) else decode(stored)

    def seal(self) -> Seal | None:
        """Return the seal of the lineage, None if it may go on."""
        newest = self.newest()
        found = None if newest is None else self.read_any(newest)
        return found if isinstance(found, Seal) else None

    def decided(self) -> list[int]:
        """Return the decided epochs that are kept, in order: all of `epochs` but the seal."""
        seal = self.seal()
        return [epoch for epoch in self.epochs() if seal is None or epoch != seal.epoch]

    def epochs(self) -> list[int]:
        """Return the kept epochs that have a record or a seal, in order."""
        tails = (name.removeprefix("epochs/") for name in self._objects.names("epochs/"))
        return sorted(int(tail) for tail in tails if tail.isdecimal())

    def newest(self) -> int | None:
        return max(self.epochs(), default=None)

    def discarded(self, epoch: int) -> frozenset[str]:
        prefix = f"epochs/{epoch}.discard/"
        return frozenset(name.removeprefix(prefix) for name in self._objects.names(prefix))

    def discard(self, epoch: int, sink: str, why: str) -> bool:
        """Tell every later apply to leave a sink's rows of this epoch out; once."""
        return self._objects.create(f"epochs/{epoch}.discard/{sink}", why.encode())

    def claim(self, epoch: int, sink: str, part: int) -> bool:
        """Say, to the first who asks, that it may write a part of an at-most-once epoch."""
        return self._objects.create(f"epochs/{epoch}.claimed/{sink}/{part}", b"claimed")

    def finished(self, epoch: int) -> bool:
        return self._objects.read(f"epochs/{epoch}.applied") is not None

    def finish(self, epoch: int) -> None:
        self._objects.create(f"epochs/{epoch}.applied", b"applied")

    def tidy(self, record: EpochRecord) -> None:
        """Prune records and staged chunks; see `ports.EpochLog.tidy`."""
        if self._tidied is not None and record.epoch - self._tidied < _TIDY_EVERY:
            return
        try:
            self._prune(record.epoch)
        except StoreUnavailable as error:
            log.warning("old epochs were not pruned, the next epochs try again: %s", error)
            return
        self._tidied = record.epoch

    def _prune(self, newest: int) -> None:
        kept = [epoch for epoch in self.epochs() if epoch > newest - self._retained]
        for epoch in (e for e in self.epochs() if e not in kept and e < newest):
            for below in (f"epochs/{epoch}.discard/", f"epochs/{epoch}.claimed/"):
                for name in self._objects.names(below):
                    self._objects.delete(name)
            self._objects.delete(f"epochs/{epoch}.applied")
            self._objects.delete(f"epochs/{epoch}")
        attempts = {epoch: _attempt(self.read_any(epoch)) for epoch in kept}
        self._staging.sweep(attempts, newest=newest)


def _attempt(found: Seal | EpochRecord | None) -> str:
    return found.attempt if isinstance(found, EpochRecord) else ""


class StoredOffsets:
    """`ports.Offsets`: Spark's offset log as it is in storage, not as Spark remembers it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def digest(self, epoch: int) -> str | None:
        stored = self._objects.read(f"offsets/{epoch}")
        return None if stored is None else hashlib.sha256(stored).hexdigest()

    def committed(self, epoch: int) -> bool:
        return self._objects.read(f"commits/{epoch}") is not None
