"""The machine of the object store: its disk is full, or it loses power."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from infra.local_services.s3 import S3Server
from tests.robustness.failpoints import disk
from tests.robustness.failpoints.actors import Actor


class StoreMachine:
    """What the object store runs on. Its disk has the objects; only the run and its servers see it.

    Args:
        store: the server; it is restarted on the disk.
        folder: of the image of the disk.
    """

    def __init__(self, store: S3Server, folder: Path) -> None:
        self._store, self._image = store, folder / "store.img"
        store.stop()
        before = store.data.rename(store.data.with_name("before"))
        disk.make_disk(self._image, store.data)
        shutil.copytree(before, store.data, dirs_exist_ok=True)
        disk.flush(store.data)
        store.start()

    def failing(self, actor: Actor) -> AbstractContextManager[None]:
        """Return a block in which the machine fails."""
        if actor is Actor.STORE_DISK_FULL:
            return disk.full_disk(self._store.data / "filler")
        assert actor is Actor.STORE_POWER_CUT, actor
        return self._without_power()

    @contextmanager
    def _without_power(self) -> Iterator[None]:
        """Kill the server; at the end of the block it serves what was flushed to its disk."""
        self._store.kill()
        disk.lose_power(self._image, self._store.data)
        yield
        self._store.start()
