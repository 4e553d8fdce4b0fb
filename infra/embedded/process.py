"""One server process: started, probed until ready, stopped, killed, and never left behind.

Knows nothing of Kafka or MySQL. Called by kafka.py and mariadb.py.
"""

import atexit
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_WATCHDOG: Final = Path(__file__).with_name("watchdog.py")
# Below the ephemeral ports of Linux (32768) and macOS (49152): while a server is down for a
# restart, no outgoing connection of this machine can be given its port.
_PORTS: Final = range(20_000, 32_000)
_TAIL_LINES: Final = 25


class ServiceError(Exception):
    """A local service could not be started, or is not ours to stop."""


class ServerProcess:
    """A server's process, with the watchdog that ends it when this Python is gone."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Remember what to run; nothing starts yet."""
        self._name = name
        self._argv = list(argv)
        self._log = log
        self._environment = dict(os.environ if environment is None else environment)
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        """The running server's pid, or None."""
        return self._server.pid if self._server and self._server.poll() is None else None

    def start(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Start the server and wait until `ready` is true; leaves nothing behind if it fails."""
        with self._lock:
            if self.pid is not None:
                return
            self._forget()
            try:
                self._launch()
                self._wait(ready, timeout_s)
            except OSError as error:
                self.kill()
                msg = f"{self._name} could not be run: {error}. Is what it needs installed?"
                raise ServiceError(msg) from error
            except BaseException:
                self.kill()
                raise

    def _launch(self) -> None:
        # -I -S: the watchdog must start even where the environment confuses Python.
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        with self._log.open("ab") as log:
            # A session of its own: a terminal's Ctrl-C reaches us, and we stop it in order.
            self._server = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._tell(f"{self._server.pid}\n")
        atexit.register(self.stop)

    def _wait(self, ready: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            code = self._server.poll() if self._server else None
            if code is not None:
                msg = f"{self._name} ended with code {code} while starting. {self.tail()}"
                raise ServiceError(msg)
            if time.monotonic() > deadline:
                msg = (
                    f"{self._name} was not ready after {timeout_s:.0f} s, so it was ended. Is this"
                    f" machine very busy? {self.tail()}"
                )
                raise ServiceError(msg)
            time.sleep(0.05)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ask the server to stop, and kill it when it has not in time. Safe to repeat."""
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
            self._forget()

    def kill(self) -> None:
        """Kill the server at once, as a crash would. Safe to repeat."""
        with self._lock:
            if os.getpid() != self._owner:
                return
            if self._server is not None:
                self._server.kill()
                self._server.wait()
            self._forget()

    def _forget(self) -> None:
        """Release the watchdog; only after the server has been reaped, so that no pid is reused."""
        atexit.unregister(self.stop)
        if self._watchdog is not None:
            self._tell("done\n")
            if self._watchdog.stdin:
                self._watchdog.stdin.close()
            self._watchdog.wait()
        self._server = self._watchdog = None

    def _tell(self, line: str) -> None:
        if self._watchdog and self._watchdog.stdin:
            try:
                self._watchdog.stdin.write(line.encode())
            except BrokenPipeError as error:
                if self._server is not None and self._server.poll() is not None:
                    return  # the watchdog was ended from outside; there is nothing left to watch
                msg = f"{self._name}'s watchdog is gone, so it might outlive this process."
                raise ServiceError(msg) from error

    def tail(self) -> str:
        """Return the log's last lines, introduced by where the log is."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"The end of its log ({self._log}):\n" + "\n".join(lines[-_TAIL_LINES:])


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that are free now and stay out of the kernel's way."""
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
    msg = "No port from 20000 to 31999 of 127.0.0.1 is free. End what uses them."
    raise ServiceError(msg)


def accepts(port: int) -> bool:
    """Tell whether something listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
