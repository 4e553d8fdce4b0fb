"""The epoch log and Spark's offset log in a checkpoint.

| object | meaning |
|---|---|
| `epochs/N` | the record that decides epoch N, or the seal that ends the lineage there |
| `epochs/N.applied` | epoch N is in every sink, where Spark's commit does not prove it |
| `epochs/N.report` | how N was applied, for people; no decision reads it, see `epoch_report` |
| `epochs/N.discard/<sink>` | an apply skips the rows of this sink (rule 14) |
| `epochs/N.claimed/<sink>/<part>` | at-most-once: the only attempt to write this part has begun |
| `offsets/N`, `commits/N` | Spark's own |
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence

from sluicegate import failpoints
from sluicegate.errors import OffsetLogDiverged, StoreUnavailable
from sluicegate.protocol.ports import LogPorts
from sluicegate.protocol.record import (
    EpochRecord,
    Seal,
    decode,
    decode_seal,
    encode,
    encode_seal,
    is_seal,
)
from sluicegate.storage.object_store import ObjectStore
from sluicegate.storage.s3_config import is_s3
from sluicegate.storage.staging_area import StagingArea

log = logging.getLogger(__name__)

DEFAULT_RETAINED = 100
"""Number of epochs kept, as of Spark's spark.sql.streaming.minBatchesToRetain."""

_PRUNE_EVERY = 10
"""Pruning lists the whole log, so it runs only once in this many epochs."""


class StoredEpochLog:
    """`ports.EpochLog` on an object store; `retained` must not be less than what Spark retains."""

    def __init__(self, checkpoint: ObjectStore, *, retained: int = DEFAULT_RETAINED) -> None:
        self._store = checkpoint
        self._staging = StagingArea(checkpoint)
        self._retained = retained
        self._last_pruned: int | None = None
        self._last: tuple[bytes, EpochRecord] | None = None
        """The last record given to `create`, encoded and as it is."""

    def create(self, record: EpochRecord) -> bool:
        encoded = encode(record)
        self._last = encoded, record
        return self._store.create(f"epochs/{record.epoch}", encoded)

    def read(self, epoch: int) -> EpochRecord | None:
        stored = self.read_any(epoch)
        if isinstance(stored, Seal):
            raise stored.error()
        return stored

    def create_seal(self, seal: Seal) -> bool:
        return self._store.create(f"epochs/{seal.epoch}", encode_seal(seal))

    def read_any(self, epoch: int) -> Seal | EpochRecord | None:
        stored = self._store.read(f"epochs/{epoch}")
        if stored is None:
            return None
        if self._last is not None and stored == self._last[0]:
            return self._last[1]  # the next epoch reads it, and it may hold megabytes of rows
        return decode_seal(stored) if is_seal(stored) else decode(stored)

    def seal(self) -> Seal | None:
        """Return the seal of the lineage, None if it is not sealed."""
        newest = self.newest()
        stored = None if newest is None else self.read_any(newest)
        return stored if isinstance(stored, Seal) else None

    def decided(self) -> list[int]:
        """Return the retained decided epochs in order: `epochs` without the seal."""
        seal = self.seal()
        return [epoch for epoch in self.epochs() if seal is None or epoch != seal.epoch]

    def epochs(self) -> list[int]:
        """Return the retained epochs that have a record or a seal, in order."""
        numbers = (name.removeprefix("epochs/") for name in self._store.names("epochs/"))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def newest(self) -> int | None:
        return max(self.epochs(), default=None)

    def discarded(self, epoch: int) -> frozenset[str]:
        prefix = f"epochs/{epoch}.discard/"
        return frozenset(name.removeprefix(prefix) for name in self._store.names(prefix))

    def discard(self, epoch: int, sink: str, why: str) -> bool:
        """Make every later apply skip a sink's rows of this epoch; False if it was discarded before."""
        return self._store.create(f"epochs/{epoch}.discard/{sink}", why.encode())

    def claim(self, epoch: int, sink: str, part: int) -> bool:
        """Claim the only attempt to write a part of an at-most-once epoch; True for the first caller."""
        return self._store.create(f"epochs/{epoch}.claimed/{sink}/{part}", b"claimed")

    def is_marked_applied(self, epoch: int) -> bool:
        return self._store.read(f"epochs/{epoch}.applied") is not None

    def mark_applied(self, epoch: int) -> None:
        self._store.create(f"epochs/{epoch}.applied", b"applied")

    def prune_after(self, record: EpochRecord) -> None:
        """Prune records and staged chunks; see `ports.EpochLog.prune_after`."""
        if self._last_pruned is not None and record.epoch - self._last_pruned < _PRUNE_EVERY:
            return
        try:
            self.prune(record.epoch)
        except StoreUnavailable as error:
            log.warning("cannot prune old epochs; a later epoch retries: %s", error)
        else:
            self._last_pruned = record.epoch

    def prune(self, newest: int) -> int:
        """Remove records beyond the retention, and staged chunks that nothing can need any more.

        Lists the log once and deletes only what exists: on S3 each call is a request. Safe next to
        a running driver and in several processes at once. Can be repeated after a StoreUnavailable.

        Args:
            newest: a decided epoch; later epochs are not touched.

        Returns:
            The number of objects removed from the log.
        """
        retained: set[int] = set()
        old: list[tuple[bool, str]] = []
        for name in self._store.names("epochs/"):
            epoch, suffix = _parse_name(name)
            if epoch is None:
                continue
            if epoch <= newest - self._retained and epoch < newest:
                old.append((not suffix, name))
            else:
                retained.add(epoch)
        for _, name in sorted(old):  # records last
            self._store.delete(name)
            failpoints.reach("pruning-log", epoch=newest)
        failpoints.reach("before-sweep", epoch=newest)
        self._staging.sweep(self._decided_attempt, retained=retained, newest=newest)
        return len(old)

    def _decided_attempt(self, epoch: int) -> str | None:
        stored = self.read_any(epoch)
        return stored.attempt if isinstance(stored, EpochRecord) else None


def _parse_name(name: str) -> tuple[int | None, str]:
    """Return the epoch of an object of the log and its suffix, which is empty for the record."""
    epoch, _, suffix = name.removeprefix("epochs/").partition(".")
    return (int(epoch) if epoch.isdecimal() else None), suffix


class StoredOffsets:
    """`ports.Offsets`: Spark's offset log as stored.

    Args:
        checkpoint: where the log is.
        running: the end offsets that the query has in memory for the epoch that it runs, one for
            each source as Spark writes them. On a file system, where Spark's rename replaces a
            file, another driver may have written other offsets after this one planned the epoch.
    """

    def __init__(
        self, checkpoint: ObjectStore, running: Mapping[int, Sequence[str]] | None = None
    ) -> None:
        self._store, self._running = checkpoint, running or {}

    def digest(self, epoch: int) -> str | None:
        stored = self._store.read(f"offsets/{epoch}")
        if stored is None:
            return None
        planned = self._running.get(epoch)
        # the version, the metadata, then one line for each source
        if planned is not None and stored.decode().splitlines()[2:] != list(planned):
            raise OffsetLogDiverged(
                f"offsets/{epoch} is not what this driver's query reads: another driver wrote it",
                data="this driver decides nothing with it; rows that it read are read again",
                do="nothing if that driver is this job's next one, which goes on; otherwise stop it, and start "
                "the job again",
            )
        return hashlib.sha256(stored).hexdigest()

    def is_committed(self, epoch: int) -> bool:
        return self._store.read(f"commits/{epoch}") is not None

    def remove_empty(self) -> None:
        """Remove the newest files of Spark's logs that a power cut has left empty, before Spark starts.

        Spark would refuse to start. Without `offsets/N` it plans epoch N again, which nothing depends
        on before `epochs/N` exists. Without `commits/N` it runs the epoch again, or the next one if
        that is planned; in both cases the record of N decides. S3 stores no part of an object.
        """
        if is_s3(self._store.url):
            return
        for folder in ("commits/", "offsets/"):
            numbers = (name.removeprefix(folder) for name in self._store.names(folder))
            for epoch in sorted((int(n) for n in numbers if n.isdecimal()), reverse=True):
                name = f"{folder}{epoch}"
                if self._store.read(name) != b"":
                    break
                if folder == "offsets/" and self._store.read(f"epochs/{epoch}") is not None:
                    break
                log.warning("%s is empty after a power cut: removed, Spark writes it again", name)
                self._store.delete(name)


class SystemClock:
    """`ports.Clock` of this machine."""

    now_ms = staticmethod(lambda: time.time_ns() // 1_000_000)
    pause = staticmethod(time.sleep)


def log_ports(checkpoint: ObjectStore) -> LogPorts:
    """Return the ports of steps that only read and write the logs of a checkpoint."""
    return LogPorts(StoredEpochLog(checkpoint), StoredOffsets(checkpoint), SystemClock())
