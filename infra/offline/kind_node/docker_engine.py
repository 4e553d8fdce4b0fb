"""The Docker engine: the machine's own, or one that this project starts on Debian as root.

The latter keeps all its data in one folder of the shared cache and runs until `python -m infra.kind engine
down`. An engine of the machine is never changed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from infra.offline.kind_node import runc_shim
from infra.toolchain.host import HostError, answers, linux, need, root, tail, where
from infra.workspace import cache_folder

_PACKAGES: Final = {"dockerd": "docker.io", "iptables": "iptables", "docker": "docker.io"}
_SOCKET: Final = "/var/run/docker.sock"
_START_TIMEOUT_S: Final = 90.0
_STOP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.2


class NoContainers(HostError):
    """No Docker engine answers, and none can be started: this machine runs no containers."""


def folder() -> Path:
    """Return where an engine of ours keeps its settings, log, images and containers."""
    return cache_folder() / "engine"


def _settings_file() -> Path:
    return folder() / "daemon.json"


def _pid_file() -> Path:
    return folder() / "dockerd.pid"


def _log() -> Path:
    return folder() / "dockerd.log"


def version() -> str:
    """Return the version of the engine that answers, or an empty string where none does."""
    if not where("docker"):
        return ""
    return (answers(["docker", "version", "--format", "{{.Server.Version}}"]) or "").strip()


def ours() -> int | None:
    """Return the process id of the engine that we started, or None where none runs."""
    try:
        pid = int(_pid_file().read_text(encoding="ascii"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None  # never started, or gone
    # a process id is given again: by its settings it is known
    return pid if str(_settings_file()).encode() in command else None


def up() -> str:
    """Return the version of an engine that answers; start one where that is ours to do.

    Raises:
        NoContainers: none answers and none can be started.
        HostError: its packages cannot be installed.
    """
    if found := version():
        return found
    if not (linux() and root()):
        raise NoContainers(
            "No Docker engine answers (`docker version` fails). Start Docker, or set DOCKER_HOST; as "
            "root on Debian one would be installed and started for you. Nothing was changed."
        )
    need(_PACKAGES)
    if not version():  # where systemd runs, its package started it
        _start()
    return version()


def _start() -> None:
    if os.environ.get("DOCKER_HOST"):
        raise NoContainers("No Docker engine answers at DOCKER_HOST; unset it to have one started.")
    folder().mkdir(parents=True, exist_ok=True)
    _settings_file().write_text(json.dumps(settings(_wrapped()), indent=1), encoding="utf-8")
    # left by a machine that crashed: dockerd would take the process with that pid for itself
    _pid_file().unlink(missing_ok=True)
    print(f"Starting a Docker engine; its log and data are in {folder()} ...", flush=True)
    with _log().open("wb") as log:
        process = subprocess.Popen(
            [where("dockerd") or "dockerd", "--config-file", _settings_file()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is not for it
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not version():
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            last = tail(_log().read_text(encoding="utf-8", errors="replace"))
            raise NoContainers(f"The Docker engine did not start. {_log()} ends with:\n{last}")
        time.sleep(_POLL_S)


def settings(runtime: Path | None) -> dict[str, object]:
    """Return dockerd's settings (docs: dockerd, daemon configuration file); `runtime` replaces runc."""
    chosen: dict[str, object] = {
        "data-root": str(folder() / "data"),
        "exec-root": "/var/run/sluicegate-docker",
        "pidfile": str(_pid_file()),
        "hosts": [f"unix://{_SOCKET}"],
        "storage-driver": "overlay2",
        "log-level": "warn",
        # what nobody reads must not fill the disk
        "log-driver": "json-file",
        "log-opts": {"max-size": "20m", "max-file": "2"},
        # the cache of image builds; one build of all images needs about 2 GB
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": "8GB"}},
    }
    if runtime:
        chosen["runtimes"] = {"fitted": {"path": str(runtime)}}
        chosen["default-runtime"] = "fitted"
    return chosen


def _wrapped() -> Path | None:
    """Write the program that stands in for runc where this machine lacks a capability."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    lacks = runc_shim.lacking(runc_shim.bounding(status), last)
    if not lacks:
        return None
    print(f"This machine lacks {', '.join(sorted(lacks))}: containers go without.", flush=True)
    wrapper = folder() / "runc-fitted"
    source = Path(runc_shim.__file__).read_text(encoding="utf-8")
    # the Python below the virtual environment, which may be removed
    wrapper.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{source}", encoding="utf-8")
    wrapper.chmod(0o755)
    return wrapper


def down() -> bool:
    """Stop the engine that we started; its images stay. Return False where there is none."""
    pid = ours()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while ours() is not None:
        if time.monotonic() > deadline:
            raise HostError(f"The Docker engine (process {pid}) does not stop; see {_log()}.")
        # where we started it in this very process, it waits for us to collect it
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(_POLL_S)
    return True
