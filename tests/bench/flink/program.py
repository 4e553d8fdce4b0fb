"""Installs Flink into the work folder: jars from PyPI, connectors and a JDBC driver from Maven, and RunSql."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.toolchain import javac, maven, pip
from infra.toolchain.maven import JarError
from infra.workspace import CHECKOUT, scratch_folder, work_folder

_PINS: Final = CHECKOUT / "requirements" / "flink.txt"
_SOURCE: Final = Path(__file__).with_name("RunSql.java")
MAIN: Final = "RunSql"


@dataclass(frozen=True)
class Flink:
    """An installed Flink.

    Args:
        class_path: of its jars, the connectors, the JDBC driver and RunSql.
    """

    class_path: str


def install() -> Flink:
    """Install Flink unless it is there, 300 MB.

    Raises:
        JarError: a package registry did not give it, or RunSql does not compile.
    """
    fetched = [maven.fetch(name) for name in ("flink", "jdbc")]
    identity = hashlib.sha256(_PINS.read_bytes() + _SOURCE.read_bytes()).hexdigest()[:12]
    target = work_folder() / f"flink-{identity}"
    if not target.is_dir():
        print("Installing Flink, a peer of the benchmark (300 MB) ...", flush=True)
        with scratch_folder("flink") as scratch:
            jars = _jars(scratch / "package")
            made = scratch / "made"
            made.mkdir()
            jars.rename(made / "lib")
            javac.compile_files([_SOURCE], (made / "lib").glob("*.jar"), made / "classes")
            made.rename(target)
    class_path = [f"{folder}/*" for folder in (target / "lib", *fetched)]
    return Flink(os.pathsep.join([str(target / "classes"), *class_path]))


def _jars(folder: Path) -> Path:
    """Return the folder of Flink's jars, unpacked from its Python package."""
    command = pip.command(_PINS, folder)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JarError(f"pip could not install Flink, so it is not measured:\n{done.stderr}")
    return folder / "pyflink" / "lib"
