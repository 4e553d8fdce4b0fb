"""Object stores on a local disk and S3, with the one operation the protocol depends on: create once.

Spark writes its own checkpoint files by itself; here they are only read back.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from sluicegate.errors import SettingsInvalid, StoreUnavailable
from sluicegate.storage.s3_config import is_s3, split_s3

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import RetryConfig

PIECE_BYTES = 4 << 20
"""Size of the pieces in which a large object is read."""


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
        """Yield the names below a prefix, which is empty or ends with '/'."""

    def delete(self, name: str) -> None:
        """Delete an object; does nothing if it does not exist."""

    def stream(self, name: str) -> Iterator[bytes] | None:
        """Return the content of an object in pieces, for large ones; None if it does not exist.

        Iterating the pieces may raise StoreUnavailable too.
        """

    def put(self, name: str, content: Iterable[bytes]) -> None:
        """Write an object from pieces, atomically; replaces an existing one.

        Not create-once: only for names that no other process writes.
        """

    def clear(self) -> None:
        """Delete everything below the store's prefix; after a StoreUnavailable some of it may remain."""


def open_store(url: str, *, retry_timeout_s: float = 180.0) -> ObjectStore:
    """Return the store at an address: a path, `file://…` or `s3://bucket/prefix`.

    Endpoint and credentials of S3 come from the usual AWS_* environment variables. A request to S3
    without a clear reply is retried for `retry_timeout_s`. An unknown scheme is a SettingsInvalid.
    """
    if is_s3(url):
        bucket, prefix = split_s3(url)
        retry: RetryConfig = {"retry_timeout": timedelta(seconds=retry_timeout_s)}
        return S3ObjectStore(S3Store(bucket, prefix=prefix or None, retry_config=retry), url)
    parts = urlsplit(url)
    if not parts.scheme:
        return LocalObjectStore(Path(url), url)
    if parts.scheme == "file" and not parts.query and not parts.fragment:
        return LocalObjectStore(Path(parts.path), url)
    raise SettingsInvalid(
        f"the address {url} has an unknown scheme, a '?' or a '#'",
        data="nothing was started",
        do="use a path, file:///path or s3://bucket/prefix",
    )


def is_inside(name: str) -> bool:
    """Return whether an object's name stays below the root of its store, wherever that is."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _checked(name: str) -> str:
    """Return the name of an object; raises SettingsInvalid if it leaves the root of the store."""
    if is_inside(name):
        return name
    raise SettingsInvalid(
        f"{name!r} is not the name of an object: it is absolute, or has an empty part, '.' or '..'",
        data="nothing was read, written or deleted",
        do="find out who wrote this name into the savepoint or checkpoint, and do not use that any more",
    )


class LocalObjectStore:
    """Objects as files. An object is created by a hard link to a complete, synced file: atomically."""

    def __init__(self, root: Path, url: str = "") -> None:
        self._root = root
        self.url = url or str(root)

    def create(self, name: str, content: bytes) -> bool:
        target = self._root / _checked(name)
        with _failures_of(f"create {target}"), _scratch_file(target, [content]) as scratch:
            try:
                os.link(scratch, target)
            except FileExistsError:
                return False
            _sync_directory(target.parent)
        return True

    def read(self, name: str) -> bytes | None:
        path = self._root / _checked(name)
        with _failures_of(f"read {path}"):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def names(self, prefix: str) -> Iterator[str]:
        # listed completely first, because callers delete while they iterate
        folder = self._root / _checked(prefix.removesuffix("/")) if prefix else self._root
        for path in list(folder.rglob("*")):
            if not path.name.startswith(".") and path.is_file():
                yield path.relative_to(self._root).as_posix()

    def clear(self) -> None:
        with _failures_of(f"delete {self._root}"), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._root)

    def delete(self, name: str) -> None:
        path = self._root / _checked(name)
        with _failures_of(f"delete {path}"):
            path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._root:
                return
            try:
                folder.rmdir()
            except OSError:  # not empty, or gone already: an empty folder means nothing
                return

    def stream(self, name: str) -> Iterator[bytes] | None:
        path = self._root / _checked(name)
        with _failures_of(f"read {path}"):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return None
        return _pieces(file, str(path))

    def put(self, name: str, content: Iterable[bytes]) -> None:
        target = self._root / _checked(name)
        with _failures_of(f"write {target}"), _scratch_file(target, content) as scratch:
            scratch.replace(target)
            _sync_directory(target.parent)


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


def _sync_directory(path: Path) -> None:
    """Make the new name survive a power failure, not only the content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_NO_OBJECT = ("NoSuchKey", "No data in memory")
"""How S3 and obstore's in-memory store report a missing object, as opposed to a missing bucket."""


class S3ObjectStore:
    """Objects in a bucket. An object is created by one PUT with `If-None-Match: *`, never multipart."""

    def __init__(self, store: S3Store, url: str = "") -> None:
        self._store, self.url = store, url

    def create(self, name: str, content: bytes) -> bool:
        with _failures_of(f"create {name}"):
            try:
                obstore.put(
                    self._store, _checked(name), content, mode="create", use_multipart=False
                )
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def read(self, name: str) -> bytes | None:
        with _failures_of(f"read {name}"):
            try:
                return obstore.get(self._store, _checked(name)).bytes().to_bytes()
            except FileNotFoundError as error:
                # a missing bucket, for example, must not look like an empty checkpoint
                if not any(sign in str(error) for sign in _NO_OBJECT):
                    raise
                return None

    def names(self, prefix: str) -> Iterator[str]:
        with _failures_of(f"list {prefix}"):
            for page in obstore.list(self._store, prefix=prefix):
                yield from (entry["path"] for entry in page)

    def clear(self) -> None:
        for name in list(self.names("")):
            self.delete(name)

    def delete(self, name: str) -> None:
        with _failures_of(f"delete {name}"), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, _checked(name))

    def stream(self, name: str) -> Iterator[bytes] | None:
        with _failures_of(f"read {name}"):
            try:
                response = obstore.get(self._store, _checked(name))
            except FileNotFoundError:
                return None
        return _streamed(response, name)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        # through a file: obstore would iterate the pieces inside its own runtime, in which it cannot
        # read the pieces of another object
        with tempfile.SpooledTemporaryFile(max_size=2 * PIECE_BYTES) as whole:
            whole.writelines(content)
            whole.seek(0)
            with _failures_of(f"write {name}"):
                obstore.put(self._store, _checked(name), whole)


def _streamed(response: GetResult, name: str) -> Iterator[bytes]:
    with _failures_of(f"read {name}"):
        for piece in response.stream(min_chunk_size=PIECE_BYTES):
            yield bytes(piece)


def _describe(error: Exception) -> str:
    """Return a store's error in one line: S3 replies with a page of XML, which obstore repeats."""
    text = str(error)
    line = next(iter(text.splitlines()), "").partition(": <?xml")[0]
    matches = [re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("Code", "Message")]
    details = ": ".join(match.group(1) for match in matches if match)
    return f"{line}: {details}" if details else line


@contextlib.contextmanager
def _failures_of(action: str) -> Iterator[None]:
    """Raise failures of the disk or of S3 (also FileNotFoundError: there is no bucket) as ours."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise StoreUnavailable(
            f"the checkpoint store did not {action}: {_describe(error)}",
            data="a write may or may not have succeeded; reading it back decides that",
            do="check the store (space, permissions, network); the driver retries",
        ) from error
