"""Create-once objects on a local disk or S3: the only thing the protocol asks of a store.

Not here: Spark's own checkpoint files (Spark writes those), and what any name means.
Callers: `epoch_log`, `staging`, `lineage`, and the read-back of Spark's offset log.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from sluicegate.protocol.errors import SettingsInvalid, StoreUnavailable

if TYPE_CHECKING:
    from obstore import GetResult

PIECE_BYTES = 4 << 20
"""How much of a large object is in memory at a time."""


class Objects(Protocol):
    """A flat store of small objects by name; names have '/' between their parts."""

    def create(self, name: str, content: bytes) -> bool:
        """Create an object: True if it is new, False if the name was taken (rule 1).

        Raises:
            StoreUnavailable: no answer, or one in doubt.
        """

    def read(self, name: str) -> bytes | None:
        """Return an object's content, None if there is none."""

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names below a prefix, which ends at a '/'."""

    def delete(self, name: str) -> None:
        """Remove an object; one that is not there is no error."""

    def chunks(self, name: str) -> Iterator[bytes] | None:
        """Return an object's content in pieces, for one too large for memory; None if there is none.

        Raises:
            StoreUnavailable: no answer, also while the pieces are taken.
        """

    def put(self, name: str, content: Iterable[bytes]) -> None:
        """Write an object from pieces; it appears whole or not at all, and replaces one of its name.

        For names that nobody else writes: this is not create-once.
        """

    def clear(self) -> None:
        """Remove everything below the store's prefix, whoever put it there.

        Raises:
            StoreUnavailable: some of it may be left.
        """


def open_objects(url: str) -> Objects:
    """Return the store at a checkpoint's URL: a path, `file://…` or `s3://bucket/prefix`.

    S3 takes its endpoint and credentials from the usual AWS_* environment variables.

    Raises:
        SettingsInvalid: another scheme.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return LocalObjects(Path(parts.path if parts.scheme else url))
    if parts.scheme in ("s3", "s3a"):
        return S3Objects(S3Store(parts.netloc, prefix=parts.path.strip("/") or None))
    raise SettingsInvalid(
        f"checkpoint {url}: unknown scheme {parts.scheme}",
        data="nothing was started",
        do="give a path, file:///path or s3://bucket/prefix",
    )


class LocalObjects:
    """Objects as files. Created by a hard link from a finished, synced file, so never half there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, name: str, content: bytes) -> bool:
        target = self._root / name
        scratch = target.with_name(f".{uuid.uuid4().hex}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(scratch, target)
            except FileExistsError:
                return False
            finally:
                scratch.unlink(missing_ok=True)
            _sync_directory(target.parent)
        except OSError as error:
            raise _unavailable(f"create {target}", error) from error
        return True

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unavailable(f"read {self._root / name}", error) from error

    def names(self, prefix: str) -> Iterator[str]:
        # listed at once: callers delete while they go through the names
        for path in list((self._root / prefix).rglob("*")):
            if not path.name.startswith(".") and path.is_file():
                yield path.relative_to(self._root).as_posix()

    def clear(self) -> None:
        try:
            shutil.rmtree(self._root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable(f"delete {self._root}", error) from error

    def delete(self, name: str) -> None:
        path = self._root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(f"delete {path}", error) from error
        for folder in path.parents:
            if folder == self._root:
                return
            try:
                folder.rmdir()
            except OSError:  # not empty, or gone: a folder is only the place of its objects
                return

    def chunks(self, name: str) -> Iterator[bytes] | None:
        try:
            file = (self._root / name).open("rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unavailable(f"read {self._root / name}", error) from error
        return _pieces(file, str(self._root / name))

    def put(self, name: str, content: Iterable[bytes]) -> None:
        target = self._root / name
        scratch = target.with_name(f".{uuid.uuid4().hex}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with scratch.open("wb") as file:
                    file.writelines(content)
                    file.flush()
                    os.fsync(file.fileno())
                scratch.replace(target)
            finally:
                scratch.unlink(missing_ok=True)
            _sync_directory(target.parent)
        except OSError as error:
            raise _unavailable(f"write {target}", error) from error


def _pieces(file: BinaryIO, name: str) -> Iterator[bytes]:
    with file:
        try:
            while piece := file.read(PIECE_BYTES):
                yield piece
        except OSError as error:
            raise _unavailable(f"read {name}", error) from error


def _sync_directory(path: Path) -> None:
    """Make the new name survive a power cut, not only the bytes behind it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class S3Objects:
    """Objects of a bucket. Creation is one PUT with `If-None-Match: *`, never a multipart upload."""

    def __init__(self, store: S3Store) -> None:
        self._store = store

    def create(self, name: str, content: bytes) -> bool:
        try:
            obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except BaseError as error:
            raise _unavailable(f"create {name}", error) from error
        return True

    def read(self, name: str) -> bytes | None:
        try:
            return obstore.get(self._store, name).bytes().to_bytes()
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise _unavailable(f"read {name}", error) from error

    def names(self, prefix: str) -> Iterator[str]:
        try:
            for page in obstore.list(self._store, prefix=prefix):
                yield from (entry["path"] for entry in page)
        except BaseError as error:
            raise _unavailable(f"list {prefix}", error) from error

    def clear(self) -> None:
        for name in list(self.names("")):
            self.delete(name)

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise _unavailable(f"delete {name}", error) from error

    def chunks(self, name: str) -> Iterator[bytes] | None:
        try:
            found = obstore.get(self._store, name)
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise _unavailable(f"read {name}", error) from error
        return _streamed(found, name)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        # through a file: obstore would take the pieces within its own runtime, from which it cannot
        # be asked for pieces of another object
        with tempfile.SpooledTemporaryFile(max_size=2 * PIECE_BYTES) as whole:
            whole.writelines(content)
            whole.seek(0)
            try:
                obstore.put(self._store, name, whole)
            except (BaseError, OSError) as error:
                raise _unavailable(f"write {name}", error) from error


def _streamed(found: GetResult, name: str) -> Iterator[bytes]:
    try:
        for piece in found.stream(min_chunk_size=PIECE_BYTES):
            yield bytes(piece)
    except BaseError as error:
        raise _unavailable(f"read {name}", error) from error


def _unavailable(what: str, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"the checkpoint store did not {what}: {error}",
        data="whether a write got through is unknown; it is settled by reading it back",
        do="look at the store (space, permissions, network); the driver tries again",
    )
