"""Disks of a test that lose in a power cut what was not flushed."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.robustness.failpoints import disk


def make_disk(image: Path, folder: Path, stack: ExitStack) -> Path:
    """Return the folder of a new disk until the stack is closed; skip the test where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount the image of a disk")
    try:
        disk.make_disk(image, folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine mounts no loop device: {error.stderr.decode().strip()}")
    stack.callback(disk.unmount, folder)
    return folder


def mount_after_cut(image: Path, folder: Path, stack: ExitStack) -> Path:
    """Return the folder of a disk as a power cut has left it, until the stack is closed."""
    disk.mount(image, folder)
    stack.callback(disk.unmount, folder)
    return folder
