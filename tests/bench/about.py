"""What was measured and where: the machine, the versions, the commit and the command."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from infra import versions
from infra.preflight import java_command
from infra.workspace import CHECKOUT

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class About:
    """The circumstances of a run of the command.

    Args:
        command: what was run.
        date: the day on which it began, UTC.
        commit: the checkout's commit; '+' after it: with changes that are not committed.
        machine: processor, cores, memory and system.
        software: versions of what was measured.
    """

    command: str
    date: str
    commit: str
    machine: str
    software: str


def about(arguments: Sequence[str]) -> About:
    """Return the circumstances of this run."""
    options = _without_files(arguments)
    command = f'make bench ARGS="{shlex.join(options)}"' if options else "make bench"
    return About(command, datetime.now(UTC).date().isoformat(), commit(), _machine(), _software())


def _without_files(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the files that are written, which are of no interest to a reader."""
    files = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    files.add_argument("--json")
    files.add_argument("--page")
    return files.parse_known_args(arguments)[1]


def commit() -> str:
    """Return the checkout's commit, as in `About`."""
    head = _output("git", "rev-parse", "--short=10", "HEAD") or "unknown"
    return f"{head}+" if _output("git", "status", "--porcelain", "-uno") else head


def _machine() -> str:
    names = (line.partition(":")[2].strip() for line in _lines(_CPUINFO) if "model name" in line)
    model = next(names, platform.processor() or platform.machine())
    sizes = (int(line.split()[1]) for line in _lines(_MEMINFO) if line.startswith("MemTotal"))
    memory = "".join(f", {size / (1 << 20):.0f} GiB" for size in sizes)
    return f"{model}, {os.cpu_count()} cores{memory}, {platform.system()} {platform.release()}"


def _software() -> str:
    java = _output(java_command(), "--version").partition("\n")[0]
    return (
        f"Python {platform.python_version()}, {java}, Spark {versions.SPARK}, Kafka {versions.KAFKA}, "
        f"MariaDB {versions.MARIADB}, Flink's Kafka connector {versions.FLINK_KAFKA}, "
        f"Kafka Streams {versions.KAFKA_STREAMS}, MariaDB Connector/J {versions.MARIADB_JDBC}"
    )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
