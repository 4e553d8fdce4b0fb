"""Which files of a checkpoint a savepoint of epoch N is made of.

Enough for Spark to start at epoch N+1, and no more: of `offsets/` and `commits/` the last two up
to N; per state partition the newest snapshot up to version N+1 (an epoch N writes version N+1) with
the changes after it, and of RocksDB's files those that the snapshot names; everything else that is
not ours as it is (`sources/`, the state's metadata, what a job keeps beside them). Spark's own
checksums (`*.crc` beside the state) go with their files; Hadoop's hidden ones do not: a file without
one is read unchecked, and the manifest has a checksum of every file.

Layouts: RocksDB with changelog (`N.zip`, `N.changelog`, `SSTs/`, `logs/`) and the hdfs-backed store
(`N.delta`, `N.snapshot`) of Spark 4.1.2, state checkpoint format v1. Called by `savepoints`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sluicegate.protocol.errors import SavepointRefused

OURS = ("epochs/", "staging/", "requests/", "parent/", "preflight/")
"""Folders of a checkpoint that belong to its lineage, and never to another."""

OUR_FILES = frozenset({"lineage.json", "metadata", "ancestry.json", "restoring.json"})
"""The same; `metadata` is the id of Spark's query, of which a restored checkpoint gets a new one."""

_KEPT_BATCHES = 2
_LOG = re.compile(r"(offsets|commits)/(\d+)")
_VERSION = re.compile(r"(state/\d+/\d+/(?:[^/]+/)?)(\d+)\.(changelog|zip|delta|snapshot)(\.crc)?")
_FORMAT_2 = re.compile(r"state/\d+/\d+/(?:[^/]+/)?\d+_[0-9a-f-]{36}")
_ROCKSDB = re.compile(r"state/\d+/\d+/(?:[^/]+/)?(SSTs|logs)/")

_SNAPSHOTS = ("zip", "snapshot")
_CHANGES = ("changelog", "delta")


class Vanished(Exception):
    """A file that is needed is not there: Spark has pruned it meanwhile. A newer epoch has all."""


@dataclass
class _Partition:
    """The versions of one store of one state partition."""

    snapshots: dict[int, str] = field(default_factory=dict)
    changes: dict[int, str] = field(default_factory=dict)


def chosen(names: Iterable[str], epoch: int, read: Callable[[str], bytes | None]) -> list[str]:
    """Return the names that make a savepoint of an epoch.

    Args:
        names: everything in the checkpoint.
        epoch: the last epoch that the savepoint holds.
        read: returns a file's content, None if there is none.

    Raises:
        Vanished: a file that is needed is not there.
        SavepointRefused: the state is of a format that is not known here.
    """
    there = set(names)
    kept: set[str] = set()
    partitions: dict[str, _Partition] = {}
    for name in there:
        if name in OUR_FILES or name.startswith(OURS) or _ROCKSDB.match(name):
            continue
        if _FORMAT_2.match(name):
            raise _format_2(name)
        if log := _LOG.fullmatch(name):
            if epoch - _KEPT_BATCHES < int(log[2]) <= epoch:
                kept.add(name)
        elif version := _VERSION.fullmatch(name):
            _sort_in(partitions.setdefault(version[1], _Partition()), version, epoch + 1)
        else:
            kept.add(name)
    for needed in (f"offsets/{epoch}", f"commits/{epoch}"):
        if needed not in there:
            raise Vanished(needed)
    for prefix, partition in partitions.items():
        kept.update(_state(prefix, partition, epoch + 1, read))
    return sorted(kept | {f"{name}.crc" for name in kept if f"{name}.crc" in there})


def _sort_in(partition: _Partition, name: re.Match[str], version: int) -> None:
    if name[4] or int(name[2]) > version:
        return  # a checksum goes with its file
    kind = partition.snapshots if name[3] in _SNAPSHOTS else partition.changes
    kind[int(name[2])] = name[0]


def _state(
    prefix: str, partition: _Partition, version: int, read: Callable[[str], bytes | None]
) -> set[str]:
    """Return the files from which one store comes to a version."""
    base = max(partition.snapshots, default=0)
    needed = range(base + 1, version + 1)
    missing = [f"{prefix}{v}" for v in needed if v not in partition.changes]
    if missing:
        raise Vanished(f"the changes {', '.join(missing[:3])}")
    kept = {partition.changes[v] for v in needed}
    if base:
        snapshot = partition.snapshots[base]
        kept.add(snapshot)
        if snapshot.endswith(".zip"):
            kept.update(_named_by(snapshot, prefix, read))
    return kept


def _named_by(snapshot: str, prefix: str, read: Callable[[str], bytes | None]) -> set[str]:
    """Return the immutable files that a RocksDB snapshot is made of, by its own metadata."""
    content = read(snapshot)
    if content is None:
        raise Vanished(snapshot)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            head, _, body = archive.read("metadata").partition(b"\n")
        listed = json.loads(body if head == b"v1" else b"null")  # null: has no files
        ssts = {f"{prefix}SSTs/{file['dfsSstFileName']}" for file in listed["sstFiles"]}
        logs = {f"{prefix}logs/{file['dfsLogFileName']}" for file in listed.get("logFiles") or ()}
    except (zipfile.BadZipFile, LookupError, TypeError, ValueError) as error:
        raise SavepointRefused(
            f"the state snapshot {snapshot} cannot be read: {error}",
            data="no savepoint was taken; the checkpoint was not changed",
            do="if the job starts from this checkpoint, report it; if not, restore the file",
        ) from error
    return ssts | logs


def _format_2(name: str) -> SavepointRefused:
    return SavepointRefused(
        f"{name} is state of checkpoint format 2",
        data="no savepoint was taken; the checkpoint was not changed",
        do="run the job with Sluicegate's own settings: it needs state checkpoint format 1",
    )
