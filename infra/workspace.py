"""Folders of this checkout for jars, binaries and data, and the cache that all clones share.

A module without imports of infra, because every other one uses it.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parent.parent


def work_folder() -> Path:
    """Return the work folder: SLUICEGATE_WORK, or `.work` in the checkout."""
    named = os.environ.get("SLUICEGATE_WORK")
    return Path(named).expanduser().resolve() if named else CHECKOUT / ".work"


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a temporary folder inside the work folder, so that renames stay on one file system."""
    base = work_folder()
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-", dir=base) as folder:
        yield Path(folder)


@contextmanager
def locked(lock: Path, waiting: str = "") -> Iterator[None]:
    """Hold a lock between processes by a file; print `waiting` if another process holds it."""
    with lock.open("w", encoding="utf-8") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, end="\n" if waiting else "", flush=True)
            fcntl.flock(claim, fcntl.LOCK_EX)
        yield


@contextmanager
def making(target: Path) -> Iterator[None]:
    """Hold the lock of a file or folder, so that one process makes it while all others wait for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.with_name(f".{target.name}.lock")
    with locked(lock, f"Waiting for another process, which makes {target.name} ..."):
        yield


def outdated(files: Iterable[tuple[Path, str]]) -> list[Path]:
    """Return the generated files whose text on the disk is another one, or that do not exist."""
    return [
        path
        for path, text in files
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def cache_folder() -> Path:
    """Return the cache that all clones of this user share, for what takes long to build."""
    if named := os.environ.get("SLUICEGATE_CACHE"):
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sluicegate"
