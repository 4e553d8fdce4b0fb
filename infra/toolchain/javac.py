"""Compiles jobs/java into a jar in the folder of Spark's jars, so that a session finds the classes.

It uses the Eclipse compiler from Maven, because a machine with a JRE has no javac, and compiles against
pyspark's own jars, so that the classes fit the Spark that loads them.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from infra.preflight import java_command
from infra.toolchain import maven
from infra.workspace import CHECKOUT, making, scratch_folder

SOURCES: Final = CHECKOUT / "jobs" / "java"
RELEASE: Final = "17"

_NAME: Final = "sluicegate-java"
_DAWN: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the same sources make the same jar."""


def build(sources: Path = SOURCES) -> Path:
    """Compile unless the jar of these sources and jars is there; return it."""
    jars = maven.fetch("spark")
    files = sorted(sources.rglob("*.java"))
    target = jars / f"{_NAME}-{_identity(sources, files)}.jar"
    with making(jars.with_name(_NAME)):
        if not target.is_file():
            _build(files, target)
    return target


def _build(files: Sequence[Path], target: Path) -> None:
    jars = target.parent
    print("Compiling Sluicegate's own Java classes ...", flush=True)
    with scratch_folder("java") as scratch:
        classes = scratch / "classes"
        theirs = [*sorted(maven.pyspark_jars().glob("*.jar")), *sorted(jars.glob("*.jar"))]
        compile_files(files, (jar for jar in theirs if not jar.name.startswith(_NAME)), classes)
        made = scratch / target.name
        _pack(classes, made)
        for old in jars.glob(f"{_NAME}-*.jar"):
            old.unlink()
        made.rename(target)


def _identity(sources: Path, files: list[Path]) -> str:
    digest = hashlib.sha256(RELEASE.encode())
    for file in files:
        digest.update(f"{file.relative_to(sources)}\0".encode() + file.read_bytes())
    locked = maven.read_lock()
    digest.update(repr(sorted((*locked["compiler"].items(), *locked["spark"].items()))).encode())
    digest.update(repr(sorted(jar.name for jar in maven.pyspark_jars().glob("*.jar"))).encode())
    return digest.hexdigest()[:12]


def compile_files(files: Sequence[Path], jars: Iterable[Path], classes: Path) -> None:
    """Compile Java files against jars into a folder of classes.

    Raises:
        JarError: they do not compile, or Maven did not give the compiler.
    """
    compiler = maven.fetch("compiler")
    path = os.pathsep.join(map(str, jars))
    argv = [java_command(), "-cp", f"{compiler}/*", "org.eclipse.jdt.internal.compiler.batch.Main"]
    argv += ["--release", RELEASE, "-encoding", "UTF-8", "-proc:none", "-failOnWarning"]
    argv += ["-warn:-resource"]  # a file system is Hadoop's to close, a stream its caller's
    argv += ["-cp", path, "-d", str(classes), *map(str, files)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = done.stdout + done.stderr
        where = os.path.commonpath([file.parent for file in files])
        raise maven.JarError(f"Java in {where} does not compile, nothing was installed:\n{output}")


def _pack(classes: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _DAWN)
            file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> int:
    """Compile."""
    try:
        build()
    except maven.JarError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
