"""The content of the images that were built from this checkout; skipped without `make images`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra import versions
from infra.images import build, sbom
from infra.images.catalog import IMAGES, VERSION, Image
from infra.images.contents import Entry, Files
from infra.workspace import CHECKOUT, cache_folder, work_folder
from sluicegate.spark.class_archive import ARCHIVE, CLASS_PATH
from tests.integration.images import archives


@dataclass(frozen=True)
class Built:
    """An image, its configuration and its files."""

    image: Image
    config: dict[str, Any]
    files: Files


@pytest.fixture(params=IMAGES, scope="module")
def built(request: pytest.FixtureRequest) -> Built:
    image = IMAGES[request.param]
    build_result = build.built(image)
    if build_result is None:
        pytest.skip(f"sluicegate/{image.name} is not built from this checkout: run `make images`")
    config, files = archives.read(build_result.archive)
    return Built(image, config["config"], files)


def _read(entry: Entry | None) -> bytes:
    assert entry is not None
    assert entry.content is not None
    return entry.content.read()


def test_it_runs_as_a_numeric_user_with_a_name(built: Built) -> None:
    assert built.config["User"] == "10001:10001"
    assert b"sluicegate:x:10001:10001:" in _read(built.files["etc/passwd"])


def test_no_file_is_setuid_and_the_user_owns_only_data(built: Built) -> None:
    assert not [path for path, entry in built.files.items() if entry.mode & 0o6000]
    owned = {path for path, entry in built.files.items() if entry.uid == 10001}
    assert all(path.startswith("var/lib/") for path in owned)


def test_labels_describe_the_image(built: Built) -> None:
    labels = built.config["Labels"]
    for name in ("title", "description", "version", "licenses", "base.name"):
        assert labels[f"org.opencontainers.image.{name}"]


def test_its_entry_point_exists(built: Built) -> None:
    program = built.config["Entrypoint"][0]
    candidates = (
        [program] if "/" in program else [f"/usr/local/bin/{program}", f"/usr/bin/{program}"]
    )
    assert any(candidate.lstrip("/") in built.files for candidate in candidates)


def test_its_sbom_lists_its_packages(built: Built) -> None:
    document = json.loads(_read(built.files[sbom.path_of(built.image.name)]))
    listed = {component["purl"] for component in document["components"]}
    assert document["bomFormat"] == "CycloneDX"
    assert any(purl.startswith("pkg:deb/debian/libc6@") for purl in listed)
    jars = {path for path in built.files if path.endswith(".jar")}
    assert len({p for p in listed if p.startswith("pkg:maven/")}) >= 0.95 * len(jars)
    metadata = {path for path in built.files if path.endswith(".dist-info/METADATA")}
    assert len({p for p in listed if p.startswith("pkg:pypi/")}) == len(metadata)
    expected = {
        "jobs": f"pkg:pypi/sluicegate@{VERSION}",
        "operator": f"pkg:pypi/sluicegate-operator@{VERSION}",
        "kafka": "pkg:maven/org.apache.kafka/kafka_2.13@4.2.2",
        "mysql": "pkg:deb/debian/mysql-server-core@",
        "store": "pkg:golang/github.com/versity/versitygw",
        "valkey": "pkg:deb/debian/valkey-server@",
        "collector": "pkg:golang/go.opentelemetry.io/collector/receiver/otlpreceiver@",
    }
    assert any(purl.startswith(expected[built.image.name]) for purl in listed)


@pytest.mark.parametrize(
    ("built", "exporter"),
    [
        ("kafka", f"opt/kafka/agents/jmx_prometheus_javaagent-{versions.JMX_EXPORTER}.jar"),
        ("mysql", "usr/bin/mysqld_exporter"),
    ],
    indirect=["built"],
)
def test_the_servers_have_what_serves_their_metrics(built: Built, exporter: str) -> None:
    assert exporter in built.files


def test_it_does_not_exceed_its_size_limit(built: Built) -> None:
    size = sum(entry.content.length for entry in built.files.values() if entry.content)
    assert size <= built.image.at_most


def test_it_has_no_caches_and_no_package_sources(built: Built) -> None:
    unwanted = ("var/lib/apt/", "var/cache/", "var/log/", "etc/apt/", "root/.cache")
    assert not [path for path in built.files if path.startswith(unwanted)]
    assert not [path for path in built.files if path.endswith("/direct_url.json")]


def test_no_file_contains_a_name_of_the_build_machine(built: Built) -> None:
    names = {str(name).encode() for name in _names_of_this_machine()}
    for path, entry in built.files.items():
        if entry.content is not None:
            data = entry.content.read()
            assert not [name for name in names if name in data], path


def _names_of_this_machine() -> Iterator[Path | str]:
    """Yield paths of this machine, and hosts of its package registries."""
    yield from (CHECKOUT, cache_folder(), work_folder())
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "SLUICEGATE_MAVEN_MIRROR", "GOPROXY"):
        for address in os.environ.get(name, "").replace(",", " ").split():
            if host := urlsplit(address).hostname:
                yield host


@pytest.mark.parametrize("built", ["jobs"], indirect=True)
def test_the_jobs_image_has_the_jars_of_a_session(built: Built) -> None:
    variables = dict(variable.split("=", 1) for variable in built.config["Env"])
    folder = variables["SLUICEGATE_JARS"].lstrip("/")
    names = [p.rpartition("/")[2] for p in built.files if p.startswith(f"{folder}/")]
    for prefix in ("spark-sql-kafka-0-10", "hadoop-aws", "sluicegate-java"):
        assert any(name.startswith(prefix) for name in names), prefix
    home = variables["SPARK_HOME"].lstrip("/")
    assert any(p.startswith(f"{home}/jars/spark-core_") for p in built.files)
    assert any(p.startswith(f"{home}/jars/spark-kubernetes_") for p in built.files)


@pytest.mark.parametrize("built", ["jobs"], indirect=True)
def test_the_jobs_image_has_a_class_archive_of_jars_that_it_has(built: Built) -> None:
    variables = dict(variable.split("=", 1) for variable in built.config["Env"])
    folder = variables["SLUICEGATE_JARS"].lstrip("/")
    assert f"{folder}/{ARCHIVE}" in built.files
    jars = _read(built.files[f"{folder}/{CLASS_PATH}"]).decode().split()
    assert len(jars) > 200
    assert not [jar for jar in jars if jar.lstrip("/") not in built.files]


@pytest.mark.parametrize("built", ["jobs", "operator"], indirect=True)
def test_bytecode_exists_and_is_checked_by_hash(built: Built) -> None:
    """The root is read-only, so a container cannot keep byte code; see PEP 552 for the flags."""
    packages = "usr/local/lib/python3.11/dist-packages"
    for module in ("sluicegate/__init__", "requests/__init__"):
        folder, _, name = module.rpartition("/")
        code = built.files[f"{packages}/{folder}/__pycache__/{name}.cpython-311.pyc"]
        assert _read(code)[4:8] == bytes([3, 0, 0, 0])
