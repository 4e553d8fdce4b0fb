"""Loads images from archives into the node, without a registry.

Images whose id the node already has are not loaded again.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from infra.kind import cluster
from infra.offline.kind_node import image_archive
from infra.toolchain.go_programs import link_tool
from infra.toolchain.host import HostError, Steps, run
from infra.workspace import CHECKOUT

_LOAD_PATIENCE_S: Final = 600.0


def ours() -> list[Path]:
    """Return the archives of this project's images, as `infra.images` names them."""
    said = run(
        [sys.executable, "-m", "infra.images", "--archives"],
        what="The images' archives are not known (build them with `make images`)",
    )
    found = [CHECKOUT / line for line in said.splitlines() if line.strip()]
    if not found:
        raise HostError("There are no images to load: build them with `make images`.")
    return found


def load(archives: Iterable[Path]) -> None:
    """Load what the node lacks, one archive after the other; say what was there."""
    there = on_the_node()
    needed = [path for path in archives if lacks(_read(path), there)]
    if not needed:
        print("The node has all of these images.")
        return
    steps = Steps(len(needed))
    for path in needed:
        names = " ".join(name for image in _read(path) for name in image.names)
        steps.begin(f"loading {names} ({path.stat().st_size / 1e6:.0f} MB)")
        run(
            [link_tool("kind"), "load", "image-archive", "--name", cluster.NAME, path],
            what=f"{path} could not be loaded",
            patience_s=_LOAD_PATIENCE_S,
        )


def on_the_node() -> dict[str, str]:
    """Return the node's images: the id of each name."""
    said = run(
        ["docker", "exec", cluster.NODE, "crictl", "images", "--output", "json"],
        what="The node does not answer (is there a cluster? `make kind-up`)",
    )
    return named(json.loads(said))


def named(listed: dict[str, Any]) -> dict[str, str]:
    """Return the id of each name in what crictl lists (CRI, ListImagesResponse, as JSON)."""
    return {name: image["id"] for image in listed["images"] for name in image.get("repoTags") or ()}


def lacks(images: list[image_archive.ImageName], there: dict[str, str]) -> bool:
    """Return whether a node lacks one of an archive's images, or has another under its name."""
    return any(there.get(name) != image.identity for image in images for name in image.on_a_node())


def _read(path: Path) -> list[image_archive.ImageName]:
    try:
        return image_archive.read(path)
    except (OSError, ValueError) as error:
        raise HostError(f"{path} cannot be read as an image archive: {error}") from error
