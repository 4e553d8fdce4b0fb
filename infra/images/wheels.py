"""Python distributions as files of an image: fetched by hash, unpacked, and compiled.

Wheels are of the image's system and Python, whatever this machine's are. Only pyspark, which is
published as source, comes from the environment that `make` installed by the same hashes. Not here:
which ones (`catalogue`). Called by `catalogue`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from installer import install
from installer.destinations import WheelDestination
from installer.records import RecordEntry
from installer.sources import WheelFile
from installer.utils import Scheme
from packaging.markers import Marker
from typing_extensions import override

from infra.images.debian import architecture
from infra.images.layers import (
    EPOCH,
    FILE_MODE,
    PROGRAM_MODE,
    Content,
    Entry,
    Files,
    text,
)
from infra.work import CHECKOUT, scratch_folder

if TYPE_CHECKING:
    from installer.scripts import ScriptSection

PYTHON: Final = "3.11"
"""Of the image: Debian's."""

INTERPRETER: Final = f"/usr/bin/python{PYTHON}"
PACKAGES: Final = f"usr/local/lib/python{PYTHON}/dist-packages"
"""Where Debian's Python looks for what is not Debian's, without any variable."""

PROGRAMS: Final = "usr/local/bin"

_FROM_ENVIRONMENT: Final = ("pyspark",)

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_PLATFORMS: Final = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")

_LEFT_OUT: Final = re.compile(
    r"""(?x)(
        ^(pandas|numpy|pyarrow)/(.*/)?tests/ | ^pyarrow/(include|src)/ | ^numpy/_core/(include|lib)/
        | ^pyarrow/(_flight|flight|libarrow_flight|libarrow_python_flight)\.
        | ^pyspark/(examples|data|sbin|tests)/ | \.(pyi|pxd|pyx|cmd)$
        | \.dist-info/(INSTALLER|REQUESTED|direct_url\.json|RECORD)$ | (^|/)__pycache__/
    )"""
)
"""Tests and headers of others, Arrow's network protocol, and what tells from where something came."""


class WheelError(Exception):
    """A Python distribution could not be had as it is pinned; no image was made of it."""


class _Collected(WheelDestination):
    """Takes what `installer` would write as files of an image."""

    def __init__(self) -> None:
        self.files: Files = {}

    @override
    def write_file(
        self, scheme: Scheme, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """Take a file, to where its scheme is."""
        name, data = os.fspath(path), stream.read()
        where = {"scripts": PROGRAMS, "data": "usr/local"}.get(scheme, PACKAGES)
        mode = PROGRAM_MODE if is_executable or scheme == "scripts" else FILE_MODE
        if scheme == "scripts":
            data = re.sub(rb"\A#!python", b"#!" + INTERPRETER.encode(), data)
        self.files[f"{where}/{name}"] = Entry(Content(data), mode=mode)
        return RecordEntry(name, None, None)

    @override
    def write_script(
        self, name: str, module: str, attr: str, section: ScriptSection
    ) -> RecordEntry:
        """Take a command of a distribution."""
        words = (
            f"#!{INTERPRETER}\nimport sys\n\nfrom {module} import {attr.partition('.')[0]}\n\n"
            f"sys.exit({attr}())\n"
        )
        self.files[f"{PROGRAMS}/{name}"] = text(words, PROGRAM_MODE)
        return RecordEntry(name, None, None)

    @override
    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        """Write no RECORD: nothing is uninstalled from an image."""


def locked(lock: Path, *, but: Iterable[str] = ()) -> Files:
    """Return the distributions of a lock file that the image's Python needs.

    Args:
        lock: of `make lock`, with hashes.
        but: names to leave out.

    Raises:
        WheelError: one is not to be had, or is not the one that is pinned.
    """
    leave = {*but, *_FROM_ENVIRONMENT}
    wanted = [block for name, block in _requirements(lock) if name not in leave]
    with scratch_folder("wheels") as scratch:
        pins = scratch / "pins.txt"
        pins.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        machine = _MACHINES[architecture()]
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
        options += ["--python-version", PYTHON, "--implementation", "cp"]
        for platform in _PLATFORMS:
            options += ["--platform", f"{platform}_{machine}"]
        _pip(["download", *options, "--dest", str(scratch / "wheels"), "-r", str(pins)])
        return _unpacked(scratch / "wheels")


def own(sources: Iterable[Path]) -> Files:
    """Return distributions that are built from folders of this checkout."""
    with scratch_folder("wheels") as scratch:
        options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(scratch)]
        _pip(["wheel", *options, *map(str, sources)])
        return _unpacked(scratch)


def environments(name: str, keep: Callable[[str], bool]) -> Files:
    """Return a distribution without programs of its own kind from this Python's environment.

    Args:
        name: of it.
        keep: whether a file is wanted, by its path in the distribution.

    Raises:
        WheelError: a file of it is not as it was installed.
    """
    distribution = metadata.distribution(name)
    found: Files = {}
    for file in distribution.files or ():
        path = file.as_posix()
        if path.startswith("../") or _LEFT_OUT.search(path) or not keep(path):
            continue
        here = Path(str(distribution.locate_file(file)))
        if file.hash and _hash(here, file.hash.mode) != file.hash.value:
            raise WheelError(
                f"{here} is not as it was installed, so it does not go into an image. Run `make"
                f" clean`, then again."
            )
        mode = PROGRAM_MODE if here.stat().st_mode & 0o100 else FILE_MODE
        content = Content.of(here)
        if path.endswith(".dist-info/WHEEL"):  # says which setuptools this machine has
            kept = (line for line in here.read_text("utf-8").splitlines(keepends=True))
            content = Content("".join(x for x in kept if not x.startswith("Generator")).encode())
        found[f"{PACKAGES}/{path}"] = Entry(content, mode=mode)
    return found


def _hash(path: Path, mode: str) -> str:
    with path.open("rb") as stream:
        made = hashlib.file_digest(stream, mode).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _requirements(lock: Path) -> Iterator[tuple[str, str]]:
    """Yield name and lines of each requirement whose marker holds in the image.

    Read here because pip asks markers of the Python that it runs in.
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


def _unpacked(wheels: Path) -> Files:
    collected = _Collected()
    for wheel in sorted(wheels.glob("*.whl")):
        with WheelFile.open(wheel) as source:
            install(source, collected, additional_metadata={})
    return {
        path: entry
        for path, entry in collected.files.items()
        if not _LEFT_OUT.search(path.removeprefix(f"{PACKAGES}/"))
    }


def _pip(arguments: list[str]) -> None:
    argv = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    done = subprocess.run(
        argv, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise WheelError(
            f"pip could not bring the distributions of an image, so it was not made. Is there a"
            f" network? Its last words:\n{tail}"
        )
