"""Object stores, with the one operation the protocol depends on: create once. The one on a local disk.

Spark writes its own checkpoint files by itself; here they are only read back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

from sluicegate.errors import SettingsInvalid, StoreUnavailable
from sluicegate.storage.object_access import PIECE_BYTES, checked, unavailable
from sluicegate.storage.s3_config import is_s3, split_s3
from sluicegate.storage.s3_object_store import open_s3

_SYNCS = 16
"""How many files are synced at the same time."""

_NEW_ABOVE_ROOT = 2
"""How many directories above a local checkpoint may have been made with it."""


class ObjectStore(Protocol):
    """A flat store of small objects by name; the parts of a name are separated by '/'."""

    @property
    def url(self) -> str:
        """The address of the store, as `open_store` takes it."""

    def create(self, name: str, content: bytes) -> bool:
        """Create an object; return False if the name exists already (rule 1).

        After a StoreUnavailable the object may or may not have been created.
        """

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, None if it does not exist."""

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names below a prefix, which is empty or ends with '/'; without markers of folders."""

    def entries(self, prefix: str) -> Iterator[str]:
        """Yield what is directly below a prefix, which is as for `names`, in any order.

        These are the full names of objects, and of folders, which end with '/'. One request to S3
        for each thousand of them, however many objects are in the folders.
        """

    def delete(self, name: str) -> None:
        """Delete an object; does nothing if it does not exist."""

    def stream(self, name: str) -> Iterator[bytes] | None:
        """Return the content of an object in pieces, for large ones; None if it does not exist.

        Iterating the pieces may raise StoreUnavailable too.
        """

    def put(self, name: str, content: Iterable[bytes]) -> None:
        """Write an object from pieces, atomically; replaces an existing one.

        Not create-once: only for names that no other process writes, or that decide nothing.
        """

    def sync(self, names: Iterable[str]) -> None:
        """Make objects that Spark wrote survive a power cut, as those written here do.

        Spark renames its checkpoint files into place without syncing them. A name that ends with '/'
        means everything below it. Objects that were synced by the call before and have not changed
        are skipped, and so are those that Spark deleted.
        What S3 has acknowledged needs no sync.
        """

    def clear(self) -> None:
        """Delete all that `names` yields; after a StoreUnavailable some of it may remain."""


_OUTAGE_S = 60.0
"""How long a running job retries a request to S3: the store's pod may have to start on another node."""


def open_store(url: str, *, retry_timeout_s: float = 10.0) -> ObjectStore:
    """Return the store at an address: a path, `file://…` or `s3://bucket/prefix`.

    Endpoint and credentials of S3 come from the usual AWS_* environment variables. A request to S3
    without a clear reply is retried for `retry_timeout_s`, default 10. An unknown scheme is a
    SettingsInvalid.
    """
    if is_s3(url):
        return open_s3(url, retry_timeout_s=retry_timeout_s)
    path = _local_path(url)
    if path is None:
        raise SettingsInvalid(
            f"the address '{url}' is empty, or has an unknown scheme, a host, a '?' or a '#'",
            data="nothing was started",
            do="use a path, file:///path or s3://bucket/prefix",
        )
    return LocalObjectStore(path, url)


def open_checkpoint(url: str) -> ObjectStore:
    """Return the store of a running job's checkpoint: as `open_store`, with retries for a minute."""
    return open_store(url, retry_timeout_s=_OUTAGE_S)


def _local_path(url: str) -> Path | None:
    """Return the folder that a path or `file://…` names, None for any other address."""
    parts = urlsplit(url)
    if not parts.scheme:
        return Path(url) if url else None
    is_file = parts.scheme == "file" and not (parts.netloc or parts.query or parts.fragment)
    return Path(parts.path) if is_file else None


def create_and_read(store: ObjectStore, name: str, content: bytes) -> bytes:
    """Create an object unless it exists, and return the content that it has then.

    Raises:
        StoreUnavailable: no reply, or the store does not return the object.
    """
    store.create(name, content)
    stored = store.read(name)
    if stored is None:
        raise StoreUnavailable(
            f"{name} of {store.url} was created and cannot be read",
            data="it is unknown what is stored there, so nothing else was done",
            do="check that nothing deletes objects there, then try again",
        )
    return stored


def absolute(url: str) -> str:
    """Return the address of a store in one spelling, which means the same in every working directory."""
    if is_s3(url):
        return "s3://" + "/".join(split_s3(url)).rstrip("/")
    path = _local_path(url)
    return url.rstrip("/") if path is None else str(path.resolve())


class LocalObjectStore:
    """Objects as files. An object is created by a hard link to a complete, synced file: atomically."""

    def __init__(self, root: Path, url: str = "") -> None:
        self._root = root
        self.url = url or str(root)
        self._root_synced = False
        self._synced: dict[Path, tuple[int, int]] = {}  # inode and time of change

    def create(self, name: str, content: bytes) -> bool:
        target = self._root / checked(name)
        with _failures_of(f"create {target}"), _scratch_file(target, [content]) as scratch:
            try:
                os.link(scratch, target)
                created = True
            except FileExistsError:
                created = False
            # also of an object that was found: who created it may have failed, or not be here yet
            self._sync_directories([target])
        return created

    def read(self, name: str) -> bytes | None:
        path = self._root / checked(name)
        with _failures_of(f"read {path}"):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def names(self, prefix: str) -> Iterator[str]:
        # listed completely first, because callers delete while they iterate
        top = self._root / checked(prefix.removesuffix("/")) if prefix else self._root
        with _failures_of(f"list {top}"):
            files = [
                Path(folder, name)
                for folder, _, names in os.walk(top, onerror=_raise_unless_gone, followlinks=True)
                for name in names
                if not name.startswith(".")
            ]
        for path in files:
            yield path.relative_to(self._root).as_posix()

    def entries(self, prefix: str) -> Iterator[str]:
        top = self._root / checked(prefix.removesuffix("/")) if prefix else self._root
        with _failures_of(f"list {top}"), contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(top)):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):  # the console may show nothing outside
                    yield f"{prefix}{entry.name}/"
                elif not entry.is_dir():
                    yield f"{prefix}{entry.name}"

    def clear(self) -> None:
        with _failures_of(f"delete {self._root}"), contextlib.suppress(FileNotFoundError):
            self._root_synced = False
            shutil.rmtree(self._root)

    def delete(self, name: str) -> None:
        path = self._root / checked(name)
        with _failures_of(f"delete {path}"):
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder != self._root:
                    with contextlib.suppress(OSError):  # not empty: an empty folder means nothing
                        folder.rmdir()
                        continue
                _sync_if_there(folder)
                return

    def stream(self, name: str) -> Iterator[bytes] | None:
        path = self._root / checked(name)
        with _failures_of(f"read {path}"):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return None
        return _pieces(file, str(path))

    def put(self, name: str, content: Iterable[bytes]) -> None:
        target = self._root / checked(name)
        with _failures_of(f"write {target}"), _scratch_file(target, content) as scratch:
            scratch.replace(target)
            self._sync_directories([target])

    def sync(self, names: Iterable[str]) -> None:
        each = (self.names(name) if name.endswith("/") else (name,) for name in names)
        files = [self._root / name for name in chain.from_iterable(each)]
        # Hadoop's local file system refuses a file whose checksum next to it is torn
        files += [path.with_name(f".{path.name}.crc") for path in files]
        found: dict[Path, tuple[int, int]] = {}
        with _failures_of(f"sync files of {self._root}"):
            for path in files:
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found[path] = status.st_ino, status.st_mtime_ns
            new = [path for path in found if self._synced.get(path) != found[path]]
            # at the same time: the file system commits its journal once for many
            with ThreadPoolExecutor(_SYNCS) as pool:
                list(pool.map(_sync_if_there, [*new, *self._directories(new)]))
            self._sync_root()
        self._synced = found

    def _sync_directories(self, files: list[Path]) -> None:
        """Make the names of files survive: any of their directories may be new, the root's too."""
        for folder in self._directories(files):
            _sync_if_there(folder)
        self._sync_root()

    def _directories(self, files: list[Path]) -> set[Path]:
        folders = {folder for path in files for folder in path.relative_to(self._root).parents}
        return {self._root / folder for folder in folders}

    def _sync_root(self) -> None:
        """Make the name of the root survive, once."""
        if not self._root_synced:
            for folder in self._root.resolve().parents[:_NEW_ABOVE_ROOT]:
                with contextlib.suppress(PermissionError):  # not ours, so not made by us
                    _sync_file(folder)
            self._root_synced = True


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextlib.contextmanager
def _scratch_file(target: Path, content: Iterable[bytes]) -> Iterator[Path]:
    """Write a complete, synced file next to `target`, which is removed after the block."""
    scratch = target.with_name(f".{uuid.uuid4().hex}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with scratch.open("wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def _pieces(file: BinaryIO, name: str) -> Iterator[bytes]:
    with file, _failures_of(f"read {name}"):
        while piece := file.read(PIECE_BYTES):
            yield piece


def _sync_file(path: Path) -> None:
    """Make a file's content, or a directory's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_if_there(path: Path) -> None:
    """Sync a file or directory unless another process has deleted it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        _sync_file(path)


@contextlib.contextmanager
def _failures_of(action: str) -> Iterator[None]:
    """Raise failures of the disk as ours."""
    try:
        yield
    except OSError as error:
        raise unavailable(action, str(error)) from error
