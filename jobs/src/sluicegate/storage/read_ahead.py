"""Begins the reads of an epoch together, because on S3 each is a round trip, and Spark plans meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sluicegate.storage.object_store import ObjectStore
from sluicegate.storage.s3_config import is_s3

_THREADS = 5
"""As many as an epoch has reads before it is staged."""

_EPOCHS = "epochs/"


class ReadAhead:
    """An `ObjectStore` whose first reads of an epoch were begun by `begin`.

    Each answer is given once, to the first who asks. It may be as old as the call of `begin`, as if the
    reader had been paused since; what decides an epoch is read after its record was created, so a
    creation drops all answers that were not taken.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._begun: dict[str, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(_THREADS, "sluicegate-reads") if is_s3(store.url) else None

    def begin(self, epoch: int) -> None:
        """Begin to read what decides whether an epoch is run, and of the epoch before."""
        if self._pool is None:
            return
        numbers = [number for number in (epoch, epoch - 1) if number >= 0]
        names = [f"{log}/{number}" for log in ("epochs", "offsets") for number in numbers]
        self._begun = {name: self._pool.submit(self._store.read, name) for name in names}
        self._begun[_EPOCHS] = self._pool.submit(lambda: list(self._store.names(_EPOCHS)))

    def drop(self) -> None:
        """Forget the answers that were not taken."""
        self._begun = {}

    @property
    def url(self) -> str:
        return self._store.url

    def create(self, name: str, content: bytes) -> bool:
        self.drop()
        return self._store.create(name, content)

    def read(self, name: str) -> bytes | None:
        begun: Future[bytes | None] | None = self._begun.pop(name, None)
        return self._store.read(name) if begun is None else begun.result()

    def names(self, prefix: str) -> Iterator[str]:
        begun: Future[list[str]] | None = self._begun.pop(prefix, None)
        return self._store.names(prefix) if begun is None else iter(begun.result())

    def entries(self, prefix: str) -> Iterator[str]:
        return self._store.entries(prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def stream(self, name: str) -> Iterator[bytes] | None:
        return self._store.stream(name)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        self._store.put(name, content)

    def sync(self, names: Iterable[str]) -> None:
        self._store.sync(names)

    def clear(self) -> None:
        self._store.clear()
