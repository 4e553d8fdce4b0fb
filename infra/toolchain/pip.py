"""Installs pinned packages of PyPI into a folder of their own, outside the environment of the project."""

import sys
from pathlib import Path


def command(pins: Path, folder: Path) -> list[str]:
    """Return the command that installs the packages of a lock file, each checked against its hash."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--no-compile", "--require-hashes", "--target", str(folder)]
    return [*pip, "-r", str(pins)]
