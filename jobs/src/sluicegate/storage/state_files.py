"""The names of the files of Spark's state, and the removal of snapshots that no decided epoch has left.

Layouts: RocksDB with changelog (`N.zip`, `N.changelog`, `SSTs/`, `logs/`) and the hdfs-backed store
(`N.delta`, `N.snapshot`) of Spark 4.1.2, state checkpoint format v1. The files of a state store are in
`state/OPERATOR/PARTITION/`, or in a folder of it if the operator has several stores, as a join has.
Epoch N reads version N and writes version N+1.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

_FOLDER = "state/"
_NAME = re.compile(r"(state/\d+/\d+/(?:[^/]+/)?)(\d+)\.(changelog|zip|delta|snapshot)(\.crc)?")
_SNAPSHOTS = ("zip", "snapshot")

_DELETIONS = 16
"""How many snapshots are deleted at the same time: there may be one in each partition."""


@dataclass(frozen=True)
class StateFile:
    """A version of a state store: all of it (a snapshot), or its changes since the version before.

    Args:
        name: of the object.
        store: the folder of the state store, with its '/'.
        version: of the state.
        is_snapshot: whether the version is complete.
        is_checksum: whether this is only Spark's checksum of the file.
    """

    name: str
    store: str
    version: int
    is_snapshot: bool
    is_checksum: bool


def state_file(name: str) -> StateFile | None:
    """Return the version that an object of a checkpoint has, None if it has none."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    return StateFile(name, parts[1], int(parts[2]), parts[3] in _SNAPSHOTS, parts[4] is not None)


def replaceable_snapshots(names: Iterable[str], version: int) -> list[str]:
    """Return the snapshots of later versions whose changes are stored too, with their checksums.

    Spark does not need them: it loads such a version from an older snapshot and the changes since.

    Args:
        names: of the objects.
        version: the last version whose snapshots are not returned.
    """
    later = [file for name in names if (file := state_file(name)) and file.version > version]
    changes = {
        (file.store, file.version)
        for file in later
        if not file.is_snapshot and not file.is_checksum
    }
    found = (file for file in later if file.is_snapshot and (file.store, file.version) in changes)
    return sorted(file.name for file in found)


def remove_undecided_snapshots(checkpoint: ObjectStore, epoch: int) -> None:
    """Remove the snapshots of the state that earlier attempts at an undecided epoch have written.

    The next attempt replaces their changes and not their snapshots, which Spark prefers. One request
    to S3 for each thousand files of the state; if there are snapshots, one more and one for each.
    Nothing is removed if the epoch is decided when the list is complete.

    A removal that was interrupted is completed by the next start. If another driver decides the epoch
    after that, its state is complete without the snapshots.

    Args:
        checkpoint: where the state is.
        epoch: the epoch after the newest that has a record.

    Raises:
        StoreUnavailable: some of the snapshots may remain.
    """
    found = replaceable_snapshots(checkpoint.names(_FOLDER), epoch)
    if not found:
        return
    # not whether the epoch has a record: a driver that slept for long would find it pruned
    newest = StoredEpochLog(checkpoint).newest()
    if newest is not None and newest >= epoch:
        return
    log.info(
        "removing %d snapshots of state (%s, ...): their attempt at epoch %d was not decided",
        len(found),
        found[0],
        epoch,
    )
    with ThreadPoolExecutor(_DELETIONS) as pool:
        list(pool.map(checkpoint.delete, found))
