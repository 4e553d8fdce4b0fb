"""Folders of this checkout for jars, binaries and data, and the cache that all clones share."""

import os
import tempfile
from collections.abc import Iterator
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


def cache_folder() -> Path:
    """Return the cache that all clones of this user share, for what takes long to build.

    SLUICEGATE_CACHE, or `sluicegate` below XDG_CACHE_HOME, or `~/.cache/sluicegate`.
    """
    named = os.environ.get("SLUICEGATE_CACHE")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sluicegate"
