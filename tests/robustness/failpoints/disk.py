"""A disk that becomes full, or loses in a power cut what was not flushed: the image of an ext4 file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PROGRAMS: Final = {"mkfs.ext4": "e2fsprogs", "mount": "mount", "umount": "mount"}
"""What it runs, with the Debian package that contains it."""
_SIZE: Final = 128 << 20
_BLOCK: Final = 4096

_RELEASED_S: Final = 10.0
_TICK_S: Final = 0.05

# ext4 writes its journal on request only, not every 5 seconds by chance, and does not guess that a file
# which replaces another one should be flushed
_OPTIONS: Final = "loop,commit=600,noauto_da_alloc"


def make_disk(image: Path, folder: Path) -> None:
    """Mount a new, empty disk at a folder; only root may.

    Raises:
        CalledProcessError: this machine mounts no loop device.
    """
    with image.open("wb") as file:
        file.truncate(_SIZE)
    _run(["mkfs.ext4", "-q", "-F", "-m", "0", "-b", str(_BLOCK), str(image)])
    mount(image, folder)


def mount(image: Path, folder: Path) -> None:
    """Mount a disk at a folder, which may exist."""
    folder.mkdir(exist_ok=True)
    _run(["mount", "-o", _OPTIONS, str(image), str(folder)])


def unmount(folder: Path) -> None:
    """Unmount a disk, which nobody uses. A thread of a killed process may still do so for a moment."""
    deadline = time.monotonic() + _RELEASED_S
    while True:
        try:
            return _run(["umount", str(folder)])
        except subprocess.CalledProcessError as error:
            if b"busy" not in error.stderr or time.monotonic() > deadline:
                raise
        time.sleep(_TICK_S)


def flush(folder: Path) -> None:
    """Flush all that was written to a disk."""
    _run(["sync", "-f", str(folder)])


def cut(image: Path) -> Path:
    """Return a copy of what a mounted disk has, as after a power cut."""
    copy = image.with_name(f"after-the-cut-{image.name}")
    _run(["cp", "--sparse=always", str(image), str(copy)])
    return copy


def lose_power(image: Path, folder: Path) -> None:
    """Leave on a disk what it has after a power cut; nobody uses it meanwhile."""
    left = cut(image)
    unmount(folder)
    left.replace(image)
    mount(image, folder)


@contextmanager
def full_disk(file: Path) -> Iterator[None]:
    """Fill a disk by a file while the block runs."""
    with file.open("wb", buffering=0) as content:
        while shutil.disk_usage(file.parent).free:  # others may still delete files
            with suppress(OSError):
                while content.write(bytes(_BLOCK)):
                    pass
    try:
        yield
    finally:
        file.unlink()


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})
