"""Runs commands of this machine, installs missing Debian packages and counts the steps of a command."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_TAIL_LINES: Final = 12


class HostError(Exception):
    """A command failed or a package is missing; the message has the reason and what to do."""


class Steps:
    """The steps of one command, printed as they begin."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began: Final = time.monotonic()

    def begin(self, what: str) -> None:
        """Print that a step begins."""
        self._done += 1
        print(f"{self._done} of {self._total}: {what} ...", flush=True)

    def grow(self, more: int) -> None:
        """Add steps that became known only now."""
        self._total += more

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._began


def run(
    argv: Sequence[str | Path],
    *,
    what: str,
    patience_s: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command; return what it printed to its standard output.

    Args:
        argv: the command.
        what: the start of the error message: "the node could not be built".
        patience_s: seconds after which it is killed.
        environment: variables in addition to those of this process.

    Raises:
        HostError: it could not be run, took too long, or failed.
    """
    command = [str(part) for part in argv]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
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
        raise HostError(f"{what}. The output of {Path(command[0]).name}:\n{last}")
    return done.stdout


def answers(
    argv: Sequence[str | Path],
    patience_s: float = 30.0,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Return a command's output, or None if it fails or is missing; see `run`."""
    try:
        return run(argv, what="", patience_s=patience_s, environment=environment)
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
    """Return whether Debian packages can be installed: root on Debian."""
    return linux() and root() and shutil.which("apt-get") is not None


def need(commands: Mapping[str, str]) -> None:
    """Install the missing ones of these commands, each named with the Debian package that contains it.

    Raises:
        HostError: this is not Debian, the user is not root, or a package cannot be installed.
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
    run(["apt-get", "update"], what="Debian's package lists cannot be fetched", environment=quiet)
    run(
        ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
        what=f"{' '.join(packages)} could not be installed",
        patience_s=900.0,
        environment=quiet,
    )
    if lacking := [name for name in missing if not where(name)]:
        raise HostError(f"{', '.join(lacking)} is still missing after the installation.")


def where(name: str) -> str | None:
    """Return the path of a command; also searches the folders that only root's PATH has."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return shutil.which(name, path=path)


@contextmanager
def apt_settings() -> Iterator[Path]:
    """Yield a file with this machine's settings of apt for downloads, such as a proxy.

    They include whether apt accepts package lists that are past their date, which a mirror that
    stands still needs. The file is empty where there is no apt.
    """
    dump = answers(["apt-config", "dump"]) or ""
    wanted = ("Acquire::Check-", "Acquire::Retries", "Acquire::http::", "Acquire::https::")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.writelines(f"{line}\n" for line in dump.splitlines() if line.startswith(wanted))
        file.flush()
        yield Path(file.name)
