"""The stores of the console, which only list and read: one for each address.

Opening a store on S3 for each job would cost more than to read the job: 5 ms of CPU time and 0.1 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import NoReturn

from sluicegate.storage.object_store import ObjectStore, open_store

_RETRY_S = 5.0
"""A store that does not answer is a message on the page, and soon."""


class Stores:
    """Opens what is below some addresses.

    Args:
        addresses: each is opened once, at its first use.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._opened: dict[str, ObjectStore] = {}
        self._lock = Lock()

    def open(self, address: str) -> ObjectStore:
        """Return the store at one of the addresses, or at one below.

        Raises:
            SettingsInvalid: its scheme is unknown.
        """
        root = next(of for of in self.addresses if f"{address}/".startswith(f"{of.rstrip('/')}/"))
        with self._lock:
            store = self._opened.get(root)
            if store is None:
                store = self._opened[root] = open_store(root, retry_timeout_s=_RETRY_S)
        below = address.removeprefix(root.rstrip("/")).strip("/")
        return _Folder(store, address, f"{below}/" if below else "")


class _Folder:
    """A folder of a store, which cannot be changed through it."""

    def __init__(self, store: ObjectStore, url: str, prefix: str) -> None:
        self.url = url
        self._store, self._prefix = store, prefix

    def read(self, name: str) -> bytes | None:
        return self._store.read(self._prefix + name)

    def names(self, prefix: str) -> Iterator[str]:
        return self._without_prefix(self._store.names(self._prefix + prefix))

    def entries(self, prefix: str) -> Iterator[str]:
        return self._without_prefix(self._store.entries(self._prefix + prefix))

    def stream(self, name: str) -> Iterator[bytes] | None:
        return self._store.stream(self._prefix + name)

    def create(self, name: str, content: bytes) -> bool:
        del content
        _refuse(name)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        del content
        _refuse(name)

    def delete(self, name: str) -> None:
        _refuse(name)

    def sync(self, names: Iterable[str]) -> None:
        _refuse(*names)

    def clear(self) -> None:
        _refuse(self.url)

    def _without_prefix(self, names: Iterator[str]) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in names)


def _refuse(*names: str) -> NoReturn:
    raise AssertionError(f"the console only reads, and would have changed {', '.join(names)}")
