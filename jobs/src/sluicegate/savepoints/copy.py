"""Copies files from one store to another, several at a time, and computes their SHA-256.

Every byte passes through this process: the checksum needs it, so a copy inside the store would save
only half of the transfer. Large files are streamed in pieces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from sluicegate.errors import SavepointInvalid
from sluicegate.savepoints.file_selection import FilePruned
from sluicegate.savepoints.manifest import SavedFile
from sluicegate.storage.object_store import ObjectStore

_THREADS = 8


def copy_files(
    source: ObjectStore,
    target: ObjectStore,
    names: Mapping[str, str],
    *,
    reach: Callable[[], None],
) -> dict[str, SavedFile]:
    """Copy files; those of the same name in the target are replaced.

    Args:
        source: the store to copy from.
        target: the store to copy to.
        names: name in the target -> name in the source.
        reach: called before each file: a failpoint.

    Returns:
        The size and digest of each file, by its name in the target.

    Raises:
        FilePruned: a file does not exist any more.
    """
    with ThreadPoolExecutor(_THREADS, "sluicegate-copy") as pool:
        copies = {
            name: pool.submit(_copy_file, source, of, target, name, reach)
            for name, of in names.items()
        }
        try:
            return {name: done.result() for name, done in copies.items()}
        finally:  # the first error cancels the rest
            for done in copies.values():
                done.cancel()


def _copy_file(
    source: ObjectStore, name: str, target: ObjectStore, new_name: str, reach: Callable[[], None]
) -> SavedFile:
    reach()
    pieces = source.stream(name)
    if pieces is None:
        raise FilePruned(name)
    digest, size = hashlib.sha256(), 0

    def hashed() -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            yield piece

    target.put(new_name, hashed())
    return SavedFile(size, digest.hexdigest())


def copy_verified(
    source: ObjectStore,
    target: ObjectStore,
    files: Mapping[str, SavedFile],
    *,
    reach: Callable[[], None],
) -> None:
    """Copy the files of a savepoint into a checkpoint; raises SavepointInvalid if one is damaged."""
    try:
        copied = copy_files(source, target, {name: name for name in files}, reach=reach)
    except FilePruned as error:
        raise _damaged(str(error), "is missing") from error
    for name, file in copied.items():
        if file != files[name]:
            raise _damaged(name, "has changed since it was saved")


def _damaged(name: str, how: str) -> SavepointInvalid:
    return SavepointInvalid(
        f"file {name} of the savepoint {how}",
        data="the checkpoint is incomplete, and no job can start on it",
        do="restore the file from the store's object versions or a backup, or use another savepoint",
    )
