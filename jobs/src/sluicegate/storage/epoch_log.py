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
            self.prune(record.epoch)
        except StoreUnavailable as error:
            log.warning("old epochs were not pruned, the next epochs try again: %s", error)
            return
        self._tidied = record.epoch

    def prune(self, newest: int) -> int:
        """Remove records older than are kept, and staged chunks that nothing can need any more.

        Looks at the log once and removes only what is there: on S3 each look is a request. May be
        done beside a driver, and by several at once.

        Args:
            newest: a decided epoch; nothing of a later one is touched.

        Returns:
            How many objects of the log were removed.

        Raises:
            StoreUnavailable: the rest stays, and can be removed by another call.
        """
        kept: set[int] = set()
        old: list[str] = []
        for name in self._objects.names("epochs/"):
            epoch, what = _parsed(name)
            if epoch is None:
                continue
            if epoch > newest - self._retained or epoch >= newest:
                kept.update({epoch} if not what else ())
            else:
                old.append(name)
        for name in sorted(old, key=lambda name: (_parsed(name)[1] == "", name)):  # records last
            self._objects.delete(name)
        self._staging.sweep(lambda epoch: self._attempt(epoch, kept), newest=newest)
        return len(old)

    def _attempt(self, epoch: int, kept: set[int]) -> str | None:
        found = self.read_any(epoch) if epoch in kept else None
        return found.attempt if isinstance(found, EpochRecord) else None


def _parsed(name: str) -> tuple[int | None, str]:
    """Return the epoch of an object of the log, and what it is of it: nothing for the record."""
    epoch, _, what = name.removeprefix("epochs/").partition(".")
    return (int(epoch) if epoch.isdecimal() else None), what


class StoredOffsets:
    """`ports.Offsets`: Spark's offset log as it is in storage, not as Spark remembers it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def digest(self, epoch: int) -> str | None:
        stored = self._objects.read(f"offsets/{epoch}")
        return None if stored is None else hashlib.sha256(stored).hexdigest()

    def committed(self, epoch: int) -> bool:
        return self._objects.read(f"commits/{epoch}") is not None
