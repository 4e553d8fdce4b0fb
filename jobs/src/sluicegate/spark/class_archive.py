"""The jars that a session puts on class paths, and the JVM's archive of their classes (JEP 310).

With the archive a driver starts in half to two thirds of the time. It fits one JVM, and class paths that
begin with the jars of which it was made, so these are listed in a file next to it. `jars/*` would not do:
its order is that of the file system, which another machine has differently.

`python -m sluicegate.spark.class_archive FOLDER CLASSES` makes an archive.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark

log = logging.getLogger("sluicegate.run")

ARCHIVE: Final = "driver.jsa"
"""The archive, in the folder of the jars."""

CLASS_PATH: Final = "driver.classpath"
"""The jars of which the archive was made, in order, each in a line."""

_OPTIONS: Final = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:class+path=off")
"""Without a word the JVM does without an archive that does not fit."""


def jar_settings(folder: Path, master: str) -> dict[str, str]:
    """Return the settings that put the jars of a folder on the class paths of driver and executors.

    Args:
        folder: of the jars, with their class archive if there is one.
        master: Spark's master URL.
    """
    own, archived = _jars(folder), _archived(folder)
    jars = own if archived is None else [*archived, *(jar for jar in own if jar not in archived)]
    here = ["driver", "executor"] if master.startswith("local-cluster") else ["driver"]
    # on the initial class path of the JVM: only those classes can be archived
    settings = {f"spark.{process}.extraClassPath": os.pathsep.join(jars) for process in here}
    if not master.startswith("local"):
        settings["spark.jars"] = ",".join(own)
    if archived is not None:
        options = " ".join([f"-XX:SharedArchiveFile={folder / ARCHIVE}", *_OPTIONS])
        settings |= {f"spark.{process}.extraJavaOptions": options for process in here}
    return settings


def write(folder: Path, classes: Path) -> None:
    """Make the archive of the jars of a folder and of those of pyspark, or replace it.

    Args:
        folder: of the jars.
        classes: the names of the classes, as `-XX:DumpLoadedClassList` of a driver writes them.

    Raises:
        subprocess.CalledProcessError: the JVM could not make it, or refuses it; `stdout` says why.
    """
    jars = [*_jars(folder), *_jars(Path(pyspark.__file__).parent / "jars")]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made, known = Path(scratch, ARCHIVE), Path(scratch, "classes")
        # a newer JVM than the one that makes the archive may have written lines of other kinds
        lines = classes.read_text(encoding="utf-8").splitlines(keepends=True)
        known.write_text(
            "".join(line for line in lines if not line.startswith("@") or "@lambda-" in line),
            encoding="utf-8",
        )
        path = ["-XX:-UsePerfData", f"-XX:SharedArchiveFile={made}", "-cp", os.pathsep.join(jars)]
        _java("-Xshare:dump", f"-XX:SharedClassListFile={known}", *path)
        _java("-Xshare:on", *path, "-version")
        made.replace(folder / ARCHIVE)
    (folder / CLASS_PATH).write_text("".join(f"{jar}\n" for jar in jars), encoding="utf-8")


def _archived(folder: Path) -> list[str] | None:
    """Return the jars with which class paths must begin for the archive of a folder; None: it has none."""
    if not (folder / ARCHIVE).is_file() or not (folder / CLASS_PATH).is_file():
        return None
    jars = (folder / CLASS_PATH).read_text(encoding="utf-8").splitlines()
    missing = next((jar for jar in jars if not Path(jar).is_file()), None)
    if missing is not None:
        log.warning(
            "the class archive %s is not used, because it was made with %s, which is gone: this start "
            "takes up to twice as long; `make classes` makes a new one",
            folder / ARCHIVE,
            missing,
        )
        return None
    return jars


def _jars(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("*.jar"))


def _java(*arguments: str) -> None:
    """Run the JVM that Spark will run."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else "java"
    subprocess.run(
        [command, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main(arguments: list[str]) -> None:
    """Make the archive of a folder from a list of classes."""
    folder, classes = map(Path, arguments)
    try:
        write(folder, classes)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.stdout}")


if __name__ == "__main__":
    main(sys.argv[1:])
