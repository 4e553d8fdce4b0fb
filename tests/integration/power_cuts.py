"""A disk that loses in a power cut what was not flushed: the image of an ext4 file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest


def run(command: Sequence[str]) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True)


def make_disk(image: Path, folder: Path, stack: ExitStack) -> Path:
    """Return the folder of a new, empty disk; skip the test where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount the image of a disk")
    with image.open("wb") as file:
        file.truncate(128 * 1024 * 1024)
    run(["mkfs.ext4", "-q", "-F", str(image)])
    return mount(image, folder, stack)


def mount(image: Path, folder: Path, stack: ExitStack) -> Path:
    """Mount a disk at a new folder until the stack is closed."""
    folder.mkdir()
    # the journal is written on request only, not every 5 seconds by chance
    command = ["mount", "-o", "loop,commit=600", str(image), str(folder)]
    if (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"this machine mounts no loop device: {done.stderr.strip()}")
    stack.callback(run, ["umount", str(folder)])
    return folder


def cut(image: Path) -> Path:
    """Return a copy of what the disk has, while it is in use, as after a power cut."""
    copy = image.with_name(f"after-the-cut-{image.name}")
    run(["cp", "--sparse=always", str(image), str(copy)])
    return copy
