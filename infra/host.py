"""This machine: its commands, and Debian packages that it lacks.

Not here: what the commands are for. Called by infra.images and every module of infra.kind.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

_TAIL_LINES: Final = 12


class HostError(Exception):
    """What this machine was asked for cannot be had, or failed: says why, and what to do."""


def run(
    argv: Sequence[str | Path],
    *,
    what: str,
    patience_s: float = 120.0,
    environment: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
) -> str:
    """Run a command; return what it printed to its standard output.

    Args:
        argv: the command.
        what: what it is for, for the error: "the node could not be made".
        patience_s: after which it is ended.
        environment: variables beside those of this process.
        stdin: what it reads; None: nothing.

    Raises:
        HostError: it could not be run, took too long, or failed.
    """
    command = [str(part) for part in argv]
    try:
        done = subprocess.run(
            command,
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience_s,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"{what}: {error}") from error
    if done.returncode != 0:
        last = tail(done.stdout + done.stderr) or f"exit code {done.returncode}"
        raise HostError(f"{what}. {Path(command[0]).name} said:\n{last}")
    return done.stdout


def answers(argv: Sequence[str | Path], patience_s: float = 30.0) -> str | None:
    """Return what a command printed, or None where it fails or is not there: for questions."""
    try:
        return run(argv, what="", patience_s=patience_s)
    except HostError:
        return None


def tail(text: str) -> str:
    """Return the last lines of a log, indented."""
    return "\n".join(f"  {line}" for line in text.strip().splitlines()[-_TAIL_LINES:])


def linux() -> bool:
    """Return whether this is Linux."""
    return sys.platform == "linux"


def root() -> bool:
    """Return whether this process may change the machine."""
    return os.geteuid() == 0


def may_install() -> bool:
    """Return whether Debian packages can be installed here without asking anybody."""
    return linux() and root() and shutil.which("apt-get") is not None


def need(commands: Mapping[str, str]) -> None:
    """Install what lacks of these commands, where that is possible.

    Args:
        commands: each with the Debian package that has it.

    Raises:
        HostError: some are missing and this is not Debian or the user is not root, or the packages
            cannot be had.
    """
    missing = {name: package for name, package in commands.items() if not where(name)}
    if not missing:
        return
    packages = sorted(set(missing.values()))
    if not may_install():
        raise HostError(
            f"Missing: {', '.join(sorted(missing))} (on Debian: apt-get install "
            f"{' '.join(packages)}). Nothing was installed: that needs root on Debian."
        )
    print(f"Installing Debian packages: {' '.join(packages)} ...", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], what="Debian's lists cannot be had", environment=quiet)
    run(
        ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
        what=f"{' '.join(packages)} could not be installed",
        patience_s=900.0,
        environment=quiet,
    )
    if lacking := [name for name in missing if not where(name)]:
        raise HostError(f"{', '.join(lacking)} is still missing after the installation.")


def where(name: str) -> str | None:
    """Return where a command is; also looks where only root's PATH does."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return shutil.which(name, path=path)
