"""Python packages for the system and Python of an image, which its Dockerfile copies from a folder.

pip checks each against the hashes in requirements/. It writes no byte code: the Dockerfile compiles it.
"""

import hashlib
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from packaging.markers import Marker

from infra.offline.debian_base import architecture
from infra.toolchain.host import run
from infra.workspace import scratch_folder

PYTHON: Final = "3.11"
"""Of the image: that of Debian bookworm."""

_SOURCE_ONLY: Final = ("pyspark",)
"""Published without a wheel. pip builds one, and keeps it; it is the same for all systems."""

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_PLATFORMS: Final = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
_PATIENCE_S: Final = 1200.0


def install_locked(lock: Path, target: Path) -> None:
    """Install the requirements of a lock file into a folder, unless they are already there."""
    pins = dict(requirements(lock))
    key = hashlib.sha256("\n".join([architecture(), *pins.values()]).encode()).hexdigest()
    stamp = target.with_suffix(".key")
    if stamp.is_file() and stamp.read_text(encoding="ascii") == key:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    wheels = ["--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp"]
    for platform in _PLATFORMS:
        wheels += ["--platform", f"{platform}_{_MACHINES[architecture()]}"]
    sources = [pins.pop(name) for name in _SOURCE_ONLY if name in pins]
    # with the pinned setuptools of this environment: pip would fetch the newest, without a hash
    for blocks, options in ((list(pins.values()), wheels), (sources, ["--no-build-isolation"])):
        if blocks:
            with scratch_folder("pip") as scratch:
                file = scratch / "requirements.txt"
                file.write_text("\n".join(blocks) + "\n", encoding="utf-8")
                _install(target, "--require-hashes", *options, "-r", str(file))
    stamp.write_text(key, encoding="ascii")


def install_own(sources: Iterable[Path], target: Path) -> None:
    """Install distributions of this checkout into an empty folder, without their commands."""
    _install(target, "--no-build-isolation", *map(str, sources))
    # pip's commands name the Python of this machine, and these files the folder of the sources
    shutil.rmtree(target / "bin", ignore_errors=True)
    for origin in target.glob("*.dist-info/direct_url.json"):
        origin.unlink()


def _install(target: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(
        [*pip, "--no-deps", "--no-compile", "--target", target, *arguments],
        what="The Python packages of an image could not be installed, so it was not built",
        patience_s=_PATIENCE_S,
        environment={"PIP_ROOT_USER_ACTION": "ignore"},
    )


def requirements(lock: Path) -> Iterator[tuple[str, str]]:
    """Yield name and lines of each requirement whose marker holds in the image.

    pip would evaluate the markers for the Python that it runs in.
    """
    full = f"{PYTHON}.2"
    target = {
        "python_version": PYTHON,
        "python_full_version": full,
        "implementation_name": "cpython",
        "implementation_version": full,
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": _MACHINES[architecture()],
        "extra": "",
    }
    blocks = re.split(r"^(?=[A-Za-z0-9])", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for block in blocks[1:]:
        lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
        first = lines[0].rstrip("\\ ")
        pin, _, marker = first.partition(" ; ")
        if not marker or Marker(marker).evaluate(target):
            yield pin.split("==")[0].lower(), "\n".join([f"{pin} \\", *lines[1:]])
