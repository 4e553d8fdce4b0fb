"""The archive of an image, as `docker load`, `ctr images import` and `kind load image-archive` take it.

Format: Docker's image archive, version 1.2 (manifest.json, a configuration, one tar a layer). Not
here: what the layers hold (`layers`). Called by `build`, and by infra.kind for its own images.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from infra.images.layers import EPOCH, FILE_MODE, Files, laid
from infra.images.layers import read as layer

CREATED: Final = "2026-01-01T00:00:00Z"
"""EPOCH, as the configuration writes it."""


@dataclass(frozen=True)
class Settings:
    """How a container of an image starts unless it is told otherwise.

    Args:
        entrypoint: what is run.
        command: its arguments.
        environment: variables.
        ports: that it listens on, TCP.
        labels: of the image.
        user: and group, as numbers: Kubernetes cannot tell from a name that it is not root.
        folder: the working directory.
    """

    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = "10001:10001"
    folder: str = "/tmp"  # noqa: S108 - in a container, where it is a volume of the pod


@dataclass(frozen=True)
class Tar:
    """A layer that is written.

    Args:
        path: of its tar.
        digest: `sha256:` and hex.
        made_by: what it is, for `docker history`.
    """

    path: Path
    digest: str
    made_by: str


def configuration(settings: Settings, layers: Sequence[Tar], architecture: str) -> bytes:
    """Return an image's configuration; its SHA-256 is the image's id."""
    config: dict[str, Any] = {
        "User": settings.user,
        "WorkingDir": settings.folder,
        "Entrypoint": list(settings.entrypoint),
        "Env": [f"{name}={value}" for name, value in sorted(settings.environment.items())],
        "Labels": dict(sorted(settings.labels.items())),
    }
    if settings.command:
        config["Cmd"] = list(settings.command)
    if settings.ports:
        config["ExposedPorts"] = {f"{port}/tcp": {} for port in settings.ports}
    return whole(config, layers, architecture)


def whole(config: Mapping[str, object], layers: Sequence[Tar], architecture: str) -> bytes:
    """Return the configuration file of an image of which the containers' part is given."""
    described = {
        "architecture": architecture,
        "os": "linux",
        "created": CREATED,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        "history": [{"created": CREATED, "created_by": layer.made_by} for layer in layers],
    }
    return json.dumps(described, sort_keys=True, separators=(",", ":")).encode()


def write(target: Path, name: str, config: bytes, layers: Sequence[Tar]) -> str:
    """Write an archive of one image.

    Args:
        target: where.
        name: the image's, with its tag.
        config: see `configuration`.
        layers: the lowest first.

    Returns:
        The image's id.
    """
    identity = hashlib.sha256(config).hexdigest()
    paths = [f"{layer.digest.removeprefix('sha256:')}/layer.tar" for layer in layers]
    manifest = [{"Config": f"{identity}.json", "RepoTags": [name], "Layers": paths}]
    with tarfile.open(target, "w:", format=tarfile.USTAR_FORMAT) as archive:
        _bytes(archive, "manifest.json", json.dumps(manifest, sort_keys=True).encode())
        _bytes(archive, f"{identity}.json", config)
        for path, layer in dict(zip(paths, layers, strict=True)).items():
            with layer.path.open("rb") as stream:
                info = _info(path, layer.path.stat().st_size)
                archive.addfile(info, stream)
    return f"sha256:{identity}"


def read(path: Path) -> tuple[dict[str, Any], Files]:
    """Return an archive's configuration, and what a container of its image sees."""
    with tarfile.open(path, "r:") as archive:
        (image,) = json.loads(_member(archive, "manifest.json"))
        config: dict[str, Any] = json.loads(_member(archive, image["Config"]))
        places = [archive.getmember(name).offset_data for name in image["Layers"]]
    return config, laid(layer(path, at) for at in places)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    return stream.read() if stream else b""


def _bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_info(name, len(data)), io.BytesIO(data))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, EPOCH, FILE_MODE
    return info
