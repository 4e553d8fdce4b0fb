"""BuildKit, through `docker build` and an engine that answers or that we start."""

import os
from functools import cache
from pathlib import Path
from typing import Final

from infra.images.catalog import Image
from infra.offline import debian_base
from infra.offline.kind_node import docker_engine, network
from infra.toolchain.host import HostError, answers, apt_settings, run, where

BASE_VARIABLE: Final = "SLUICEGATE_BASE"
"""mmdebstrap, stock, or the name of an image of Debian."""

_SWITCH: Final = {"DOCKER_BUILDKIT": "1"}
_PATIENCE_S: Final = 1800.0


def chosen_base() -> str:
    """Return what images are based on: `mmdebstrap`, `stock`, or the name of an image.

    SLUICEGATE_BASE decides. Without it, no image registry is used where mmdebstrap is installed, nor
    where no engine but ours answers.
    """
    if named := os.environ.get(BASE_VARIABLE, ""):
        return named
    if where("mmdebstrap") or docker_engine.ours() or not docker_engine.version():
        return "mmdebstrap"
    return "stock"


def start_engine() -> None:
    """Make sure that an engine answers; start one where this is root's Debian."""
    docker_engine.up()
    if docker_engine.ours():
        network.close()


def base(chosen: str, suite: str, *, fresh: bool) -> str:
    """Return the name of the base image of a release of Debian; build it where no registry is used.

    `chosen` is what `chosen_base` returns; `fresh` builds it from the packages that Debian has now.
    """
    if chosen == "mmdebstrap":
        return debian_base.imported(suite, fresh=fresh)
    return f"debian:{suite}-slim" if chosen == "stock" else chosen


def build(image: Image, context: Path, on: str, *arguments: str) -> None:
    """Run BuildKit on the Dockerfile of an image, `on` a base image.

    `arguments` are more arguments of `docker build`, such as `--target`.
    """
    command = [_client(), "build", "--progress", "plain", "--build-arg", f"BASE={on}"]
    command += ["--file", str(image.recipe / "Dockerfile")]
    for name, value in image.labels().items():
        command += ["--label", f"{name}={value}"]
    if docker_engine.ours():
        # apt in a build step reaches Debian's mirror as apt of the host does, and no packet is
        # forwarded from a container network
        command += ["--network", "host"]
    with apt_settings() as settings:
        command += ["--secret", f"id=apt.conf,src={settings}", *arguments, str(context)]
        run(
            command,
            what=f"{image.reference} could not be built",
            patience_s=_PATIENCE_S,
            environment=_SWITCH,
        )


def save(image: Image, target: Path) -> str:
    """Write the archive of a built image; return the id of the image."""
    what = f"The archive of {image.reference} could not be written"
    run(["docker", "save", "--output", target, image.reference], what=what, patience_s=_PATIENCE_S)
    return run(
        ["docker", "image", "inspect", "--format", "{{.Id}}", image.reference], what=what
    ).strip()


def remove_replaced() -> None:
    """Remove those of our images from the engine that a newer build took the name from."""
    label = "label=org.opencontainers.image.vendor=Sluicegate"
    answers(["docker", "image", "prune", "--force", "--filter", label], patience_s=_PATIENCE_S)


@cache
def _client() -> str:
    """Return a Docker client that has BuildKit: the first one on the path, or Debian's.

    Clients since 23.0 need the plugin buildx for it; that of Debian 12 has it built in.
    """
    for found in (where("docker"), "/usr/bin/docker"):
        usage = answers([found, "build", "--help"], environment=_SWITCH) if found else None
        if found and "--secret" in (usage or ""):
            return found
    raise HostError(
        "No Docker client here has BuildKit. Install its plugin buildx (on Debian 13: apt-get install "
        "docker-buildx), then run `make images` again. Nothing was built."
    )
