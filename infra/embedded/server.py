"""What every embedded server is: a process with a folder, started, stopped, killed and restarted.

Not here: how a process is run (`process`), what a server needs (`kafka`, `mariadb`, `redis`, `s3`).
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from infra.embedded.process import ServerProcess


class Server(ABC):
    """One server with its data in one folder; its ports and data stay over restarts."""

    NAME: ClassVar[str]
    """In messages."""
    LOG: ClassVar[str]
    """The log file, in the folder."""
    START_TIMEOUT_S: ClassVar[float]

    def __init__(self, folder: Path) -> None:
        """Nothing starts yet."""
        self._folder = folder
        self._process: ServerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The running server's pid, or None."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._folder / self.LOG

    def start(self) -> None:
        """Start the server, on the data it has, and return when it serves."""
        if self._process is None:
            self._process = ServerProcess(self.NAME, self._prepare(), self.log, self._environment())
        self._process.start(self._ready, self.START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop the server gracefully. The data stay."""
        if self._process:
            self._process.stop()

    def kill(self) -> None:
        """Kill the server with SIGKILL. The data stay as they are."""
        if self._process:
            self._process.kill()

    def restart(self) -> None:
        """Stop gracefully and start again on the same ports and data."""
        self.stop()
        self.start()

    def _environment(self) -> Mapping[str, str] | None:
        """Return the process's environment; None: ours."""
        return None

    def _kept_secrets(self, file: str, *sizes: int) -> list[str]:
        """Return random secrets of so many bytes, the same for as long as the folder lives."""
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = self._folder / file
        if not kept.is_file():
            kept.touch(mode=0o600)
            drawn = "".join(f"{secrets.token_hex(size)}\n" for size in sizes)
            kept.write_text(drawn, encoding="utf-8")
        return kept.read_text(encoding="utf-8").split()

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Make what is missing in the folder, and return the command that runs the server."""

    @abstractmethod
    def _ready(self) -> bool:
        """Say whether a client is served; False while it does not listen or only loads."""
