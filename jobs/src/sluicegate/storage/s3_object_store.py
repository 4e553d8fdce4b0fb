"""The object store on S3."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from sluicegate.storage.object_access import PIECE_BYTES, checked, unavailable
from sluicegate.storage.s3_config import split_s3

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import RetryConfig

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
"""Between two tries of a request; obstore draws a pause at random."""

_NO_LIMIT = 1_000_000
"""Of the tries: only their time is limited. With obstore's default of 10 an outage of 3 s can end a driver."""

_CONFLICT_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""Pauses before a creation is repeated that S3 refused for another request to the same name."""

_NO_OBJECT = ("NoSuchKey", "No data in memory")
"""How S3 and obstore's in-memory store report a missing object, as opposed to a missing bucket."""

_EXISTS = "412 Precondition Failed"
"""S3's answer to a creation if there is an object. A 409 (ConditionalRequestConflict) says only that another
request for the same name was under way; obstore raises AlreadyExistsError for both."""


def open_s3(url: str, *, retry_timeout_s: float) -> S3ObjectStore:
    """Return the store at `s3://bucket/prefix`; see `object_store.open_store`."""
    bucket, prefix = split_s3(url)
    retry: RetryConfig = {
        "retry_timeout": timedelta(seconds=retry_timeout_s),
        "max_retries": _NO_LIMIT,
        "backoff": {
            "init_backoff": timedelta(seconds=_SHORTEST_PAUSE_S),
            "max_backoff": timedelta(seconds=_LONGEST_PAUSE_S),
            "base": 2,
        },
    }
    return S3ObjectStore(S3Store(bucket, prefix=prefix or None, retry_config=retry), url)


class S3ObjectStore:
    """Objects in a bucket. An object is created by one PUT with `If-None-Match: *`, never multipart."""

    def __init__(self, store: S3Store, url: str = "") -> None:
        self._store, self.url = store, url

    def create(self, name: str, content: bytes) -> bool:
        pauses_s = iter(_CONFLICT_PAUSES_S)
        with _failures_of(f"create {name}"):
            while True:
                try:
                    # in this mode obstore sends one request, whatever the size
                    obstore.put(self._store, checked(name), content, mode="create")
                except AlreadyExistsError as error:
                    if _EXISTS in str(error) or self._exists(name):
                        return False
                    pause_s = next(pauses_s, None)
                    if pause_s is None:
                        raise
                    time.sleep(pause_s)
                else:
                    return True

    def _exists(self, name: str) -> bool:
        try:
            obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        with _failures_of(f"read {name}"):
            try:
                return obstore.get(self._store, checked(name)).bytes().to_bytes()
            except FileNotFoundError as error:
                # a missing bucket, for example, must not look like an empty checkpoint
                if not any(sign in str(error) for sign in _NO_OBJECT):
                    raise
                return None

    def names(self, prefix: str) -> Iterator[str]:
        with _failures_of(f"list {prefix}"):
            for page in obstore.list(self._store, prefix=prefix):
                yield from (e["path"] for e in page if not is_folder_marker(self._store, e))

    def entries(self, prefix: str) -> Iterator[str]:
        with _failures_of(f"list {prefix}"):
            found = obstore.list_with_delimiter(self._store, prefix=prefix or None)
            yield from (f"{folder.removesuffix('/')}/" for folder in found["common_prefixes"])
            paths = (entry["path"] for entry in found["objects"])
            yield from (path for path in paths if path != prefix.removesuffix("/"))  # its marker

    def clear(self) -> None:
        for name in list(self.names("")):
            self.delete(name)

    def delete(self, name: str) -> None:
        with _failures_of(f"delete {name}"), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, checked(name))

    def stream(self, name: str) -> Iterator[bytes] | None:
        with _failures_of(f"read {name}"):
            try:
                response = obstore.get(self._store, checked(name))
            except FileNotFoundError:
                return None
        return _streamed(response, name)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        # through a file: obstore would iterate the pieces inside its own runtime, in which it cannot
        # read the pieces of another object
        with tempfile.SpooledTemporaryFile(max_size=2 * PIECE_BYTES) as whole:
            with _failures_of(f"write {name} through a file in {tempfile.gettempdir()}"):
                whole.writelines(content)
                whole.seek(0)
            with _failures_of(f"write {name}"):
                obstore.put(self._store, checked(name), whole)

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: an object that S3 has acknowledged is durable."""


def is_folder_marker(store: S3Store, entry: ObjectMeta) -> bool:
    """Return whether a listed object is the empty object `x/` that stands for a folder x.

    Consoles and S3A create such objects. obstore lists them as `x`, and cannot read or delete them.
    """
    if entry["size"]:
        return False
    try:
        return not entry["path"] or not obstore.head(store, entry["path"])
    except FileNotFoundError:
        return True


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
    """Raise failures of S3 (also FileNotFoundError: there is no bucket) and of a local file as ours."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise unavailable(action, _describe(error)) from error
