"""Build contexts: the folders of which the Dockerfiles copy files.

What comes from package registries is fetched here, with this machine's package settings and against
pinned hashes. Builds then need the network for Debian packages only.
"""

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from infra import class_data_sharing
from infra.images import python_packages
from infra.images.catalog import JOBS, OPERATORS, REQUIREMENTS, SCRIPTS, Image
from infra.toolchain import go_programs, javac, maven
from infra.toolchain.go_programs import COLLECTOR
from infra.workspace import work_folder

SBOM: Final = "sbom"
"""The folder for the SBOM, which is derived from the rest of the image."""

_PACKAGES: Final = "packages"
_KEPT: Final = (_PACKAGES, f"{_PACKAGES}.key")
"""Takes a quarter of a minute to install, and changes rarely."""


def prepare(image: Image) -> Path:
    """Fill the build context of an image; return its folder. Raises what `build.build` does."""
    context = work_folder() / "images" / image.name
    context.mkdir(parents=True, exist_ok=True)
    for path in context.iterdir():
        if path.name not in _KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (context / SBOM).mkdir()
    _copy([SCRIPTS / name for name in ("setup-debian", *_COPIED.get(image.name, ()))], context)
    if image.name in _FETCHED:
        _FETCHED[image.name](context)
    return context


def _jobs(context: Path) -> None:
    python_packages.install_locked(REQUIREMENTS / "runtime.txt", context / _PACKAGES)
    python_packages.install_own([JOBS], context / "library")
    javac.build()
    _copy(maven.folder("spark").glob("*.jar"), context / "jars")
    _copy([class_data_sharing.classes()], context)


def _operator(context: Path) -> None:
    python_packages.install_locked(REQUIREMENTS / "operator.txt", context / _PACKAGES)
    python_packages.install_own([JOBS, OPERATORS], context / "library")


def _kafka(context: Path) -> None:
    _copy(maven.fetch("kafka").glob("*.jar"), context / "libs")
    _copy(maven.fetch("kafka-metrics").glob("*.jar"), context / "agents")


def _mysql(context: Path) -> None:
    _copy([go_programs.MYSQLD_EXPORTER.build()], context, name="mysqld_exporter")


def _store(context: Path) -> None:
    server = dataclasses.replace(go_programs.VERSITYGW, system="linux")
    _copy([server.build()], context, name="versitygw")


def _collector(context: Path) -> None:
    _copy([COLLECTOR.build()], context, name="otelcol")


_FETCHED: Final[Mapping[str, Callable[[Path], None]]] = {
    "jobs": _jobs,
    "operator": _operator,
    "kafka": _kafka,
    "mysql": _mysql,
    "store": _store,
    "collector": _collector,
}
_COPIED: Final[Mapping[str, Sequence[str]]] = {
    "jobs": ("entrypoint", "decommission", "sluicegate"),
    "kafka": ("kafka-server", "kafka-tool"),
    "mysql": ("mysql-server", "mysql-backup", "mysql-restore", "mysql-client"),
    "valkey": ("valkey-server",),
}
"""Scripts of an image, besides setup-debian."""


def _copy(files: Iterable[Path], folder: Path, *, name: str = "") -> None:
    """Copy files into a folder with the modes that they have in the image."""
    folder.mkdir(exist_ok=True)
    for file in files:
        target = folder / (name or file.name)
        shutil.copyfile(file, target)
        target.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
