"""The images of the platform: which parts they have, and how a container of one starts.

Not here: how a part is made (`parts`), nor an image (`build`). The names, ports and folders are what
the charts count on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from infra import versions
from infra.images import parts
from infra.images.archive import Settings
from infra.images.parts import Part

VERSION: Final = "0.1.0"
"""Of everything of ours; the tag of each image."""

_MB: Final = 1_000_000
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """An image.

    Args:
        name: below `sluicegate/`.
        title: what it is, in a line.
        carries: version of the program that it is for; ours: VERSION.
        licences: of that program, as SPDX writes them.
        parts: its layers, the lowest first.
        settings: how a container starts.
        at_most_mb: its size in MB (1,000,000 bytes), unpacked, that it is not to grow beyond.
    """

    name: str
    title: str
    carries: str
    licences: str
    parts: Callable[[], tuple[Part, ...]]
    settings: Settings
    at_most_mb: int
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """Its name with tag."""
        return f"sluicegate/{self.name}:{VERSION}"

    @property
    def at_most(self) -> int:
        """See `at_most_mb`, in bytes."""
        return self.at_most_mb * _MB

    def labels(self) -> dict[str, str]:
        """Return its labels."""
        said = {
            "title": f"sluicegate/{self.name}",
            "description": self.title,
            "version": VERSION,
            "licenses": self.licences,
            "vendor": "Sluicegate",
            "base.name": f"debian:{self.parts()[0].roots[0].suite}",
        }
        named = {f"org.opencontainers.image.{key}": value for key, value in said.items()}
        return named | {"dev.sluicegate.program-version": self.carries}

    def environment(self) -> dict[str, str]:
        """Return its variables."""
        return {"PATH": _PATH, "LANG": "C.UTF-8", **self.settings.environment}


def _jobs() -> tuple[Part, ...]:
    return (
        parts.base(parts.DEBIAN),
        parts.on(parts.DEBIAN, parts.WITH_JAVA),
        parts.on(parts.WITH_JAVA, parts.WITH_BOTH),
        parts.spark_jars(),
        parts.jobs_packages(),
        parts.connectors(),
        parts.library(),
    )


def _operator() -> tuple[Part, ...]:
    return (
        parts.base(parts.DEBIAN),
        parts.on(parts.DEBIAN, parts.WITH_PYTHON),
        parts.operator_packages(),
        parts.operator(),
    )


def _kafka() -> tuple[Part, ...]:
    return (
        parts.base(parts.DEBIAN),
        parts.on(parts.DEBIAN, parts.WITH_JAVA),
        parts.kafka(),
    )


def _mysql() -> tuple[Part, ...]:
    return (parts.base(parts.SID), parts.on(parts.SID, parts.WITH_MYSQL), parts.mysql())


def _valkey() -> tuple[Part, ...]:
    return (parts.base(parts.SID), parts.on(parts.SID, parts.WITH_VALKEY), parts.valkey())


_IMAGES: Final = (
    Image(
        "jobs",
        "Drivers and executors of streaming jobs: Spark, the library, the ready jobs",
        f"Spark {versions.SPARK}",
        "Apache-2.0",
        _jobs,
        Settings(
            entrypoint=("/opt/sluicegate/entrypoint",),
            command=("sluicegate", "--help"),
            environment={
                "JAVA_HOME": "/opt/java",
                "SPARK_HOME": f"/{parts.SPARK_HOME}",
                "SLUICEGATE_JARS": "/opt/sluicegate/jars",
                "PYTHONUNBUFFERED": "1",
            },
        ),
        at_most_mb=1250,
    ),
    Image(
        "operator",
        "The Kubernetes operator of streaming jobs, checkpoint volumes and savepoints",
        VERSION,
        "Apache-2.0",
        _operator,
        Settings(
            entrypoint=("python", "-m", "sluicegate_operator"),
            environment={"PYTHONUNBUFFERED": "1"},
            ports=(8080,),
        ),
        at_most_mb=400,
    ),
    Image(
        "kafka",
        "A node of Apache Kafka (KRaft), and its tools",
        f"Kafka {versions.KAFKA}",
        "Apache-2.0",
        _kafka,
        Settings(
            entrypoint=("/opt/sluicegate/kafka-server",),
            environment={"JAVA_HOME": "/opt/java"},
            ports=(9092, 9093, 9094),
        ),
        at_most_mb=400,
    ),
    Image(
        "mysql",
        "MySQL Community Server, and its clients",
        "MySQL of Debian sid",
        "GPL-2.0-only",
        _mysql,
        Settings(entrypoint=("/opt/sluicegate/mysql-server",), ports=(3306,)),
        at_most_mb=500,
    ),
    Image(
        "store",
        "An S3 object store on a folder: versitygw",
        f"versitygw {versions.VERSITYGW}",
        "Apache-2.0",
        lambda: (parts.base(parts.DEBIAN), parts.store()),
        Settings(entrypoint=("/usr/bin/versitygw",), ports=(7070,)),
        at_most_mb=180,
    ),
    Image(
        "valkey",
        "Valkey, for jobs that look things up",
        "Valkey of Debian sid",
        "BSD-3-Clause",
        _valkey,
        Settings(entrypoint=("/opt/sluicegate/valkey-server",), ports=(6379,)),
        at_most_mb=180,
    ),
    Image(
        "collector",
        "An OpenTelemetry Collector that takes OTLP",
        f"OpenTelemetry Collector {versions.OTELCOL}",
        "Apache-2.0",
        lambda: (parts.base(parts.DEBIAN), parts.otelcol()),
        Settings(
            entrypoint=("/usr/bin/otelcol",),
            command=("--config", "/etc/otelcol/config.yaml"),
            ports=(4317, 4318, 13133),
        ),
        at_most_mb=180,
    ),
)

IMAGES: Final[Mapping[str, Image]] = {image.name: image for image in _IMAGES}
"""By name, those that take longest first."""
