"""The console's process: started as a user does, with its memory and CPU time from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """A running console."""

    pid: int
    url: str

    def memory_mib(self) -> float:
        """Return the most memory that the process had resident, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) / 1024

    def cpu_s(self) -> float:
        """Return the seconds of CPU time that the process has used."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serve(address: str, environment: Mapping[str, str]) -> Iterator[Served]:
    """Run `sluicegate ui` on a free port; yield when it listens."""
    command = [sys.executable, "-m", "sluicegate.cli", "ui", address, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            assert process.stdout is not None
            yield Served(process.pid, process.stdout.readline().split()[0])
        finally:
            process.terminate()
