"""A local server: its process is started, probed until it is ready, stopped or killed, and never left behind.

mirakuru was considered: its executors start and probe, but a server of theirs survives a parent that is
killed by SIGKILL, which the watchdog here prevents.
"""

import atexit
import http.client
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

_WATCHDOG: Final = Path(__file__).with_name("watchdog.py")
# Below the ephemeral ports of Linux (32768) and macOS (49152): no outgoing connection of this machine can
# get a server's port while the server restarts.
_PORTS: Final = range(20_000, 32_000)
_TAIL_LINES: Final = 25


class ServiceError(Exception):
    """A local service could not be started, or belongs to somebody else."""


class Server(ABC):
    """A server with its data in one folder; ports and data are kept over restarts.

    A watchdog ends its process when this Python process ends.
    """

    NAME: ClassVar[str]
    """The server's name in messages."""
    LOG: ClassVar[str]
    """The log file's name in the folder."""
    START_TIMEOUT_S: ClassVar[float]

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command: list[str] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        """The running server's pid, or None."""
        return self._server.pid if self._server and self._server.poll() is None else None

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._folder / self.LOG

    def start(self) -> None:
        """Start the server on its data and wait until it serves clients; end it if it never does."""
        with self._lock:
            if self.pid is not None:
                return
            self._release_watchdog()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._command = self._command or self._prepare()
            try:
                self._launch()
                self._wait()
            except OSError as error:
                self.kill()
                raise ServiceError(
                    f"{self.NAME} could not be run: {error}. Check that its program is installed."
                ) from error
            except BaseException:
                self.kill()
                raise

    def stop(self, timeout_s: float = 30.0) -> None:
        """Send SIGTERM, and SIGKILL when the server has not ended in time. Safe to repeat."""
        with self._lock:
            if self._server is None or os.getpid() != self._owner:  # a forked child owns nothing
                return
            if self._server.poll() is None:
                self._server.terminate()
                try:
                    self._server.wait(timeout_s)
                except subprocess.TimeoutExpired:
                    self._server.kill()
            self._server.wait()
            self._release_watchdog()

    def kill(self) -> None:
        """Send SIGKILL, as a crash would. Safe to repeat."""
        with self._lock:
            if os.getpid() != self._owner:
                return
            if self._server is not None:
                self._server.kill()
                self._server.wait()
            self._release_watchdog()

    def restart(self) -> None:
        """Stop gracefully and start again on the same ports and data."""
        self.stop()
        self.start()

    def _launch(self) -> None:
        # -I -S: the watchdog must start even with an environment that breaks other Pythons
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        with self.log.open("ab") as log:
            # a session of its own: Ctrl-C in a terminal reaches this process, which stops the server in order
            self._server = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
            )
        self._write_to_watchdog(f"{self._server.pid}\n")
        atexit.register(self.stop)

    def _wait(self) -> None:
        deadline = time.monotonic() + self.START_TIMEOUT_S
        while not self._ready():
            code = self._server.poll() if self._server else None
            if code is not None:
                raise ServiceError(
                    f"{self.NAME} ended with code {code} while starting. {self._tail()}"
                )
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{self.NAME} was not ready after {self.START_TIMEOUT_S:.0f} s and was ended. The"
                    f" machine may be too busy. {self._tail()}"
                )
            time.sleep(0.05)

    def _tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"The end of its log ({self.log}):\n" + "\n".join(lines[-_TAIL_LINES:])

    def _release_watchdog(self) -> None:
        """End the watchdog, only after the server has been reaped: its pid cannot be reused before."""
        atexit.unregister(self.stop)
        if self._watchdog is not None:
            self._write_to_watchdog("done\n")
            if self._watchdog.stdin:
                self._watchdog.stdin.close()
            self._watchdog.wait()
        self._server = self._watchdog = None

    def _write_to_watchdog(self, line: str) -> None:
        if self._watchdog and self._watchdog.stdin:
            try:
                self._watchdog.stdin.write(line.encode())
            except BrokenPipeError as error:
                if self._server is not None and self._server.poll() is not None:
                    return  # the watchdog was ended from outside, and so was the server
                raise ServiceError(
                    f"{self.NAME}'s watchdog has ended, so the server might outlive this process."
                ) from error

    def _stored_secrets(self, file: str, *sizes: int) -> list[str]:
        """Return random secrets of these sizes in bytes; they are stored in the folder and stay the same."""
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = self._folder / file
        if not kept.is_file():
            kept.touch(mode=0o600)
            drawn = "".join(f"{secrets.token_hex(size)}\n" for size in sizes)
            kept.write_text(drawn, encoding="utf-8")
        return kept.read_text(encoding="utf-8").split()

    def _environment(self) -> Mapping[str, str] | None:
        """Return the server's environment; None for that of this process."""
        return None

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Create the missing files in the folder, which exists; return the command of the server."""

    @abstractmethod
    def _ready(self) -> bool:
        """Return whether clients are served; False while the server loads."""


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that are free now, outside the kernel's ephemeral range."""
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue  # in use: try the next
        ports.append(port)
        if len(ports) == count:
            return ports
    raise ServiceError(
        "No port from 20000 to 31999 of 127.0.0.1 is free. End the processes that use them."
    )


def accepts(port: int) -> bool:
    """Return whether something listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers_ok(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str] | None = None
) -> bool:
    """Return whether a GET is answered with 200; closes the connection."""
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False  # it does not listen yet; the caller has a deadline
    finally:
        connection.close()
