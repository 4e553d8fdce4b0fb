"""Copies files from one volume to another, each with its SHA-256, several at a time.

Every byte goes through this machine: the checksum needs it, so a copy inside the store would save
only half of the way. Large files go through in pieces. Called by `savepoints` and `restoring`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sluicegate.checkpoint.contents import Vanished
from sluicegate.checkpoint.manifest import SavedFile
from sluicegate.protocol.errors import NoSavepoint
from sluicegate.storage.objects import Objects

_AT_ONCE = 8
Given = TypeVar("Given")
Made = TypeVar("Made")


class _Hashed:
    """Passes pieces on and remembers their size and digest."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._digest, self._size = pieces, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._digest.update(piece)
            self._size += len(piece)
            yield piece

    def result(self) -> SavedFile:
        return SavedFile(self._size, self._digest.hexdigest())


def copy_all(
    source: Objects, target: Objects, names: Mapping[str, str], *, reach: Callable[[], None]
) -> dict[str, SavedFile]:
    """Copy files and return what was written, by the target's names.

    Args:
        source: where they are.
        target: where they go; a file of the same name is replaced.
        names: the target's name -> the source's.
        reach: called before each file, a failpoint.

    Raises:
        Vanished: a file is not there any more.
        StoreUnavailable: no answer.
    """

    def one(pair: tuple[str, str]) -> tuple[str, SavedFile]:
        reach()
        to, name = pair
        pieces = source.chunks(name)
        if pieces is None:
            raise Vanished(name)
        hashed = _Hashed(pieces)
        target.put(to, hashed)
        return to, hashed.result()

    return dict(_in_parallel(one, names.items()))


def copy_checked(
    source: Objects, target: Objects, files: Mapping[str, SavedFile], *, reach: Callable[[], None]
) -> None:
    """Copy a savepoint's files into a checkpoint.

    Args:
        source: the savepoint.
        target: the checkpoint; the names are the same.
        files: what each must be.
        reach: called before each file, a failpoint.

    Raises:
        NoSavepoint: a file is missing or has other bytes than were saved.
    """
    try:
        copied = copy_all(source, target, {name: name for name in files}, reach=reach)
    except Vanished as error:
        raise _changed(str(error), "is missing") from error
    for name, found in copied.items():
        if found != files[name]:
            raise _changed(name, "has other bytes than were saved")


def check_all(source: Objects, files: Mapping[str, SavedFile]) -> None:
    """See that every file of a savepoint is there and has the bytes that were saved.

    Raises:
        NoSavepoint: one has not.
    """

    def one(pair: tuple[str, SavedFile]) -> None:
        name, expected = pair
        pieces = source.chunks(name)
        if pieces is None:
            raise _changed(name, "is missing")
        hashed = _Hashed(pieces)
        for _ in hashed:
            pass
        if hashed.result() != expected:
            raise _changed(name, "has other bytes than were saved")

    for _ in _in_parallel(one, files.items()):
        pass


def _in_parallel(work: Callable[[Given], Made], items: Iterable[Given]) -> Iterator[Made]:
    """Yield results as they were ordered; the first error ends the rest."""
    with ThreadPoolExecutor(_AT_ONCE, "sluicegate-copy") as pool:
        running = [pool.submit(work, item) for item in items]
        try:
            for one in running:
                yield one.result()
        finally:
            for one in running:
                one.cancel()


def _changed(name: str, how: str) -> NoSavepoint:
    return NoSavepoint(
        f"file {name} of the savepoint {how}",
        data="no checkpoint was made of it; a job must not start from it",
        do="restore the file from the store's versions or a backup, or use another savepoint",
    )
