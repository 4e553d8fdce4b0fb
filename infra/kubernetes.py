"""kube-apiserver and etcd, for the operator's tests, and kubectl: built from Go modules (`gobuild`).

Kubernetes is released as one module whose parts (`staging/`) are modules too, left out of the
source that a Go proxy gives: go.mod's `replace` lines are pointed at the parts as they were
published, and kubernetes.sum pins those. etcd likewise, with etcd.sum. Not here: running them
(infra.embedded.kubernetes). Called by the Makefile and, for the paths, by infra.embedded.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.gobuild import BuildError, Program
from infra.versions import ETCD, ETCD_SUM, KUBERNETES, KUBERNETES_SUM

OFF_VARIABLE: Final = "SLUICEGATE_NO_KUBERNETES"
"""Set it to leave the API server out, on a machine where building takes too long."""

_FOLDER: Final = Path(__file__).parent


def _without_replace(pins: str) -> str:
    """Return etcd's go.mod without its repository's own folders: the versions are required anyway."""
    return re.sub(r"(?ms)^replace \(.*?^\)\n", "", pins)


def _with_published_parts(pins: str) -> str:
    """Return Kubernetes' go.mod with its parts as modules: 1.x.y is published as 0.x.y."""
    version = f"v0.{KUBERNETES.partition('.')[2]}"
    required = re.sub(r"(?m)^(\s+k8s\.io/[a-z0-9-]+) v0\.0\.0$", rf"\1 {version}", pins)
    return re.sub(r"=> \./staging/src/(k8s\.io/[a-z0-9-]+)", rf"=> \1 {version}", required)


def _linked() -> str:
    """Return the linker's flags by which a Kubernetes program knows its version."""
    major, minor, _ = KUBERNETES.split(".")
    said = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = [f"-X {package}.{name}={text}" for package in packages for name, text in said.items()]
    return " ".join(["-s", "-w", *flags])


def part(name: str, takes: str, *, added: Mapping[str, Path] | None = None) -> Program:
    """Return a program of Kubernetes' own module.

    Args:
        name: of the program and of its folder below `cmd`.
        takes: see `gobuild.Program`.
        added: see `gobuild.Program`.
    """
    return Program(
        name=name,
        module="k8s.io/kubernetes",
        version=KUBERNETES,
        checksum=KUBERNETES_SUM,
        package=f"./cmd/{name}",
        without=OFF_VARIABLE,
        takes=takes,
        patience_s=5400.0,
        linked=_linked(),
        published=_with_published_parts,
        sums=_FOLDER / "kubernetes.sum",
        added=added or {},
    )


ETCD_SERVER: Final = Program(
    name="etcd",
    module="go.etcd.io/etcd/server/v3",
    version=ETCD,
    checksum=ETCD_SUM,
    package=".",
    without=OFF_VARIABLE,
    published=_without_replace,
    sums=_FOLDER / "etcd.sum",
)
API_SERVER: Final = part("kube-apiserver", "4 to 15 minutes on two cores")
KUBECTL: Final = part("kubectl", "some minutes")

PROGRAMS: Final = (ETCD_SERVER, API_SERVER)


def gap() -> str:
    """Return why there is no API server here, or an empty string."""
    return next((gap for gap in (program.gap() for program in PROGRAMS) if gap), "")


def build() -> None:
    """Build what is not there.

    Raises:
        BuildError: see `gobuild.Program.build`.
    """
    for program in PROGRAMS:
        program.build()


def main() -> int:
    """Build; a machine that cannot goes on without."""
    try:
        build()
    except BuildError as error:
        print(f"{error}\nGoing on without a Kubernetes API server.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
