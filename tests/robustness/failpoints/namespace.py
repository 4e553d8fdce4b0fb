"""Runs this process in a namespace of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Final

_INSIDE: Final = "SLUICEGATE_TESTS_NAMESPACE"


def missing(programs: Mapping[str, str]) -> str:
    """Return why this user cannot have a namespace in which programs run; empty if nothing is missing.

    Args:
        programs: each with the Debian package that contains it.
    """
    if os.geteuid() != 0:
        return "only root can make a namespace"
    lacking = [name for name in programs if shutil.which(name) is None]
    packages = " ".join(sorted({programs[name] for name in lacking}))
    what = f"{', '.join(lacking)} must be installed (on Debian: apt-get install {packages})"
    return what if lacking else ""


def enter(option: str) -> None:
    """Start this process again in a new namespace, unless it is in one already.

    Args:
        option: of `unshare`, such as '--net'.
    """
    if _INSIDE not in os.environ:
        command = ["unshare", option, *sys.orig_argv]
        os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})  # noqa: S606 - no shell is needed
