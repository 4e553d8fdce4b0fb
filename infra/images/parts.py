"""Parts that images are put together from: each is made once, and is a layer of every image that has it.

Not here: which image has which parts (`catalogue`), and keeping what is made (`build`). Called by
`catalogue`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra import jars, java, versitygw
from infra.images import debian, wheels
from infra.images.bytecode import compiled
from infra.images.collector import COLLECTOR
from infra.images.debian import Root
from infra.images.layers import (
    PROGRAM_MODE,
    Content,
    Entry,
    Files,
    difference,
    folder,
    laid,
    link,
    text,
    tree,
)
from infra.work import CHECKOUT

SCRIPTS: Final = Path(__file__).with_name("files")
REQUIREMENTS: Final = CHECKOUT / "requirements"
JOBS: Final = CHECKOUT / "jobs"
OPERATORS: Final = CHECKOUT / "operators"

SPARK_HOME: Final = f"{wheels.PACKAGES}/pyspark"
JOB_FOLDER: Final = "opt/job"
"""Where a user's image puts its own modules; Python finds them there."""

_ALWAYS: Final = ("ca-certificates", "netbase", "tzdata")
_BOOKWORM: Final = (*_ALWAYS, "usr-is-merged")
_JAVA: Final = "openjdk-17-jre-headless"
_PYTHON: Final = f"python{wheels.PYTHON}"

DEBIAN: Final = Root("debian", "bookworm", _BOOKWORM)
WITH_PYTHON: Final = Root("python", "bookworm", (*_BOOKWORM, _PYTHON))
WITH_JAVA: Final = Root("java", "bookworm", (*_BOOKWORM, _JAVA))
WITH_BOTH: Final = Root("jobs", "bookworm", (*_BOOKWORM, _JAVA, _PYTHON, "tini"))
SID: Final = Root("sid", "sid", _ALWAYS)
WITH_MYSQL: Final = Root(
    "mysql", "sid", (*_ALWAYS, "mysql-server-core", "mysql-client-core", "mysql-client")
)
WITH_VALKEY: Final = Root("valkey", "sid", (*_ALWAYS, "valkey-server", "valkey-tools"))

_NOT_RUN: Final = re.compile(r"-(osx|windows)-\w+\.jar$|/jars/connect-repl/")
"""Jars of other systems, and of a shell of Scala."""


@dataclass(frozen=True)
class Part:
    """A layer of images.

    Args:
        name: what it is, for people.
        roots: that it is made of.
        inputs: files and folders of this checkout that it is made of, beside infra/images.
        make: makes it.
    """

    name: str
    make: Callable[[], Files]
    roots: tuple[Root, ...] = ()
    inputs: tuple[Path, ...] = ()


def base(root: Root) -> Part:
    """Return a root file system as the lowest part."""
    return Part(f"Debian {root.suite}", root.files, (root,))


def on(below: Root, root: Root) -> Part:
    """Return what a root file system has over another one."""
    more = " ".join(name for name in root.packages if name not in below.packages)

    def make() -> Files:
        layer = difference(below.files(), root.files())
        if _PYTHON in root.packages and _PYTHON not in below.packages:
            layer |= compiled(layer)
            layer |= {f"usr/local/bin/{name}": link(wheels.INTERPRETER) for name in _PYTHONS}
        if _JAVA in root.packages and _JAVA not in below.packages:
            home = f"/usr/lib/jvm/java-17-openjdk-{debian.architecture()}"
            layer["opt/java"] = link(home)
        return layer

    return Part(f"Debian's {more}", make, (below, root))


_PYTHONS: Final = ("python", "python3")


def spark_jars() -> Part:
    """Return the jars that pyspark ships."""

    def make() -> Files:
        files = wheels.environments("pyspark", lambda path: path.startswith("pyspark/jars/"))
        return {path: file for path, file in files.items() if not _NOT_RUN.search(path)}

    return Part("Spark's jars", make, inputs=(REQUIREMENTS / "runtime.txt",))


def connectors() -> Part:
    """Return the jars that a session loads beside Spark's: Kafka, S3A, the checkpoint manager."""

    def make() -> Files:
        java.build()
        return tree(jars.folder("spark"), "opt/sluicegate/jars", lambda name: name.endswith(".jar"))

    return Part("Kafka connector, S3A", make, inputs=(jars.LOCK, JOBS / "java"))


def jobs_packages() -> Part:
    """Return pyspark's Python files, and what the library needs beside it."""

    def make() -> Files:
        spark = wheels.environments("pyspark", lambda path: not path.startswith("pyspark/jars/"))
        return _with_code(wheels.locked(REQUIREMENTS / "runtime.txt"), spark)

    return Part("Python packages of jobs", make, inputs=(REQUIREMENTS / "runtime.txt",))


def operator_packages() -> Part:
    """Return what the operator needs."""

    def make() -> Files:
        return _with_code(wheels.locked(REQUIREMENTS / "operator.txt"))

    return Part("Python packages of the operator", make, inputs=(REQUIREMENTS / "operator.txt",))


def library() -> Part:
    """Return the library, the ready jobs, and what Spark starts executors with."""

    def make() -> Files:
        own = wheels.own([JOBS])
        return laid(
            (
                own,
                compiled(own),
                scripts("entrypoint", "decommission"),
                {
                    "opt/decom.sh": link("/opt/sluicegate/decommission"),  # Spark's default
                    JOB_FOLDER: folder(),
                    f"{wheels.PACKAGES}/sluicegate-job.pth": text(f"/{JOB_FOLDER}\n"),
                },
            )
        )

    return Part("Sluicegate's jobs", make, inputs=(JOBS,))


def operator() -> Part:
    """Return the operator, and the library, of which it needs a part."""

    def make() -> Files:
        own = wheels.own([JOBS, OPERATORS])
        del own[f"{wheels.PROGRAMS}/sluicegate"]  # needs what this image has not
        return own | compiled(own)

    inputs = (JOBS, OPERATORS / "src", OPERATORS / "pyproject.toml")
    return Part("Sluicegate's operator", make, inputs=inputs)


def kafka() -> Part:
    """Return Kafka's jars and its commands."""

    def make() -> Files:
        found = scripts("kafka-server", "kafka-tool") | _data("kafka", "etc/kafka")
        for name, below in (("kafka", "libs"), ("kafka-tools", "tools")):
            found |= tree(jars.fetch(name), f"opt/kafka/{below}", lambda jar: jar.endswith(".jar"))
        return found

    return Part("Kafka", make, inputs=(jars.LOCK,))


def mysql() -> Part:
    """Return how MySQL is started."""
    return Part("mysql-server", lambda: scripts("mysql-server") | _data("mysql", "etc/mysql"))


def valkey() -> Part:
    """Return how Valkey is started."""
    return Part("valkey-server", lambda: scripts("valkey-server") | _data("valkey"))


def store() -> Part:
    """Return the object store."""
    server = dataclasses.replace(versitygw.SERVER, system="linux")

    def make() -> Files:
        return {"usr/bin/versitygw": _program(server.build())} | _data("store")

    return Part("versitygw", make)


def otelcol() -> Part:
    """Return the OpenTelemetry Collector."""

    def make() -> Files:
        return {"usr/bin/otelcol": _program(COLLECTOR.build())} | _data("otelcol", "etc/otelcol")

    return Part("OpenTelemetry Collector", make)


def scripts(*names: str) -> Files:
    """Return commands of ours."""
    return {
        f"opt/sluicegate/{name}": Entry(Content.of(SCRIPTS / name), mode=PROGRAM_MODE)
        for name in names
    }


def _data(name: str, *settings: str) -> Files:
    """Return the folder of a server's data, and those of its settings."""
    return {
        f"var/lib/{name}": folder(0o700, debian.USER),
        **{path: folder() for path in settings},
    }


def _program(path: Path) -> Entry:
    return Entry(Content.of(path), mode=PROGRAM_MODE)


def _with_code(*parts: Files) -> Files:
    """Return distributions with their byte code, without their programs, which nothing here runs."""
    programs = f"{wheels.PROGRAMS}/"
    files = laid(parts)
    kept = {path: file for path, file in files.items() if not path.startswith(programs)}
    return kept | compiled(kept)


def sources(inputs: Iterable[Path]) -> list[Path]:
    """Return the files of inputs, without caches, in order."""
    found: list[Path] = []
    for path in inputs:
        files = [path] if path.is_file() else [f for f in sorted(path.rglob("*")) if f.is_file()]
        found += (f for f in files if not {"__pycache__", ".venv"} & set(f.parts))
    return found
