"""The images: their names, the program that each is for, their inputs and their size limits.

How an image is assembled and how a container of it starts is in `NAME/Dockerfile`. The charts rely
on the names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from infra import versions
from infra.toolchain import maven
from infra.workspace import CHECKOUT

VERSION: Final = "0.1.0"
"""Version of the library and the operator, and the tag of each image."""

HERE: Final = Path(__file__).parent
SCRIPTS: Final = HERE / "files"
REQUIREMENTS: Final = CHECKOUT / "requirements"
JOBS: Final = CHECKOUT / "jobs"
OPERATORS: Final = CHECKOUT / "operators"

Suite = Literal["bookworm", "sid"]
"""A release of Debian. MySQL and Valkey come from sid, because bookworm has neither."""

_MB: Final = 1_000_000


@dataclass(frozen=True)
class Image:
    """An image."""

    name: str  # below `sluicegate/`
    program: str  # the program that it is for, with its version
    at_most: int  # limit of its unpacked size, in bytes
    # files and folders that go into it, besides infra/images and infra/versions.py
    inputs: tuple[Path, ...] = ()
    suite: Suite = "bookworm"  # the release of Debian that it is based on
    # a Debian package, and the release series of it that the image must have
    pinned: tuple[str, str] | None = None

    @property
    def reference(self) -> str:
        """Its name with the tag.

        Nobody can publish an image under `localhost`: a node that lacks it pulls no stranger's.
        """
        return f"localhost/sluicegate/{self.name}:{VERSION}"

    @property
    def recipe(self) -> Path:
        """The folder of its Dockerfile."""
        return HERE / self.name

    def labels(self) -> dict[str, str]:
        """Return the labels that its Dockerfile does not set, because they follow from versions."""
        standard = {
            "title": f"sluicegate/{self.name}",
            "version": VERSION,
            "vendor": "Sluicegate",
            "base.name": f"debian:{self.suite}",
        }
        labels = {f"org.opencontainers.image.{key}": value for key, value in standard.items()}
        return labels | {"dev.sluicegate.program-version": self.program}


_IMAGES: Final = (
    Image(
        "jobs",
        f"Spark {versions.SPARK}",
        1350 * _MB,
        (REQUIREMENTS / "runtime.txt", maven.LOCK, JOBS, CHECKOUT / "infra/class_data_sharing.py"),
    ),
    Image(
        "operator",
        VERSION,
        400 * _MB,
        (REQUIREMENTS / "operator.txt", JOBS, OPERATORS / "src", OPERATORS / "pyproject.toml"),
    ),
    Image("kafka", f"Kafka {versions.KAFKA}", 400 * _MB, (maven.LOCK,)),
    Image(
        "mysql",
        f"MySQL {versions.MYSQL} LTS of Debian sid",
        500 * _MB,
        suite="sid",
        pinned=("mysql-server-core", versions.MYSQL),
    ),
    Image("store", f"versitygw {versions.VERSITYGW}", 180 * _MB),
    Image("valkey", "Valkey of Debian sid", 180 * _MB, suite="sid"),
    Image("collector", f"OpenTelemetry Collector {versions.OTELCOL}", 180 * _MB),
)

IMAGES: Final[Mapping[str, Image]] = {image.name: image for image in _IMAGES}
"""By name. Those that take longest come first."""
