"""Selects the files of a checkpoint that a savepoint of epoch N needs.

They are what Spark needs to start at epoch N+1, and no more:

- the last two files up to N of `offsets/` and of `commits/`;
- per state partition, the newest snapshot up to version N+1 (epoch N writes version N+1), the
  changes after it, and the RocksDB files that the snapshot names;
- all other files that do not belong to the lineage: `sources/`, the metadata of the state, and
  whatever the job stores in its checkpoint.

Spark's own checksums of state files (`*.crc`) are copied with their files. Hadoop's hidden ones are
not: a file without one is read unchecked, and the manifest has a checksum of every file.

The layouts of the state are those of `storage.state_files`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sluicegate.errors import SavepointRefused
from sluicegate.storage.state_files import StateFile, state_file

LINEAGE_FOLDERS = (
    "epochs/",
    "failures/",
    "ends/",
    "starts/",
    "staging/",
    "requests/",
    "parent/",
    "preflight/",
)
"""Folders of a checkpoint that belong to its lineage and are not copied into another one."""

LINEAGE_FILES = frozenset({"lineage.json", "metadata", "ancestry.json", "restoring.json"})
"""Files of the same kind. `metadata` is the id of Spark's query; a restore creates a new one."""

_KEPT_BATCHES = 2
_LOG = re.compile(r"(offsets|commits)/(\d+)")
_FORMAT_2 = re.compile(r"state/\d+/\d+/(?:[^/]+/)?\d+_[0-9a-f-]{36}")
_ROCKSDB = re.compile(r"state/\d+/\d+/(?:[^/]+/)?(SSTs|logs)/")


class FilePruned(Exception):
    """Raised when a needed file does not exist: Spark has pruned it. A newer epoch has all its files."""


@dataclass
class _Partition:
    """The versions of one state store of one state partition: version -> name."""

    snapshots: dict[int, str] = field(default_factory=dict)
    changes: dict[int, str] = field(default_factory=dict)


def select_files(
    names: Iterable[str], epoch: int, read: Callable[[str], bytes | None]
) -> list[str]:
    """Return the names of the files that a savepoint of an epoch needs.

    Args:
        names: all names in the checkpoint.
        epoch: the last epoch in the savepoint.
        read: returns the content of a file, None if it does not exist.

    Raises:
        FilePruned: a needed file does not exist.
        SavepointRefused: the format of the state is not supported.
    """
    existing = set(names)
    selected: set[str] = set()
    partitions: dict[str, _Partition] = {}
    for name in existing:
        if name in LINEAGE_FILES or name.startswith(LINEAGE_FOLDERS) or _ROCKSDB.match(name):
            continue
        if _FORMAT_2.match(name):
            raise _format_2(name)
        if log := _LOG.fullmatch(name):
            if epoch - _KEPT_BATCHES < int(log[2]) <= epoch:
                selected.add(name)
        elif file := state_file(name):
            _add_version(partitions.setdefault(file.store, _Partition()), file, epoch + 1)
        else:
            selected.add(name)
    for needed in (f"offsets/{epoch}", f"commits/{epoch}"):
        if needed not in existing:
            raise FilePruned(needed)
    for prefix, partition in partitions.items():
        selected.update(_state(prefix, partition, epoch + 1, read))
    return sorted(selected | {f"{name}.crc" for name in selected if f"{name}.crc" in existing})


def _add_version(partition: _Partition, file: StateFile, newest: int) -> None:
    if file.is_checksum or file.version > newest:
        return  # a checksum is selected with its file
    kind = partition.snapshots if file.is_snapshot else partition.changes
    kind[file.version] = file.name


def _state(
    prefix: str, partition: _Partition, version: int, read: Callable[[str], bytes | None]
) -> set[str]:
    """Return the files from which one state store is rebuilt at a version."""
    base = max(partition.snapshots, default=0)
    needed = range(base + 1, version + 1)
    missing = [f"{prefix}{v}" for v in needed if v not in partition.changes]
    if missing:
        raise FilePruned(f"the change {missing[0]}")
    selected = {partition.changes[v] for v in needed}
    if base:
        snapshot = partition.snapshots[base]
        selected.add(snapshot)
        if snapshot.endswith(".zip"):
            selected.update(_files_in_snapshot(snapshot, prefix, read))
    return selected


def _files_in_snapshot(snapshot: str, prefix: str, read: Callable[[str], bytes | None]) -> set[str]:
    """Return the immutable files of a RocksDB snapshot, as its own metadata lists them."""
    content = read(snapshot)
    if content is None:
        raise FilePruned(snapshot)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            head, _, body = archive.read("metadata").partition(b"\n")
        metadata = json.loads(body if head == b"v1" else b"null")  # null fails below
        ssts = {f"{prefix}SSTs/{file['dfsSstFileName']}" for file in metadata["sstFiles"]}
        logs = {f"{prefix}logs/{file['dfsLogFileName']}" for file in metadata.get("logFiles") or ()}
    except (zipfile.BadZipFile, LookupError, TypeError, ValueError) as error:
        raise SavepointRefused(
            f"the state snapshot {snapshot} cannot be read: {error}",
            data="no savepoint was taken; the checkpoint is unchanged",
            do="report a bug if the job starts from this checkpoint; otherwise restore the file",
        ) from error
    return ssts | logs


def _format_2(name: str) -> SavepointRefused:
    return SavepointRefused(
        f"{name} is state in checkpoint format 2",
        data="no savepoint was taken; the checkpoint is unchanged",
        do="run the job with Sluicegate's own settings, which use state checkpoint format 1",
    )
