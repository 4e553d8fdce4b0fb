"""Image archives without an engine: writes a folder as an image of one layer, and reads image names.

The same folder gives the same bytes, so the id of an image identifies its content. Format: the
archive of `docker save` (manifest.json, a configuration, one tar a layer), which `docker load`,
`ctr images import` and `kind load image-archive` accept.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.offline.debian_base import architecture

_MANIFEST: Final = "manifest.json"
_CREATED: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class ImageName:
    """An image of an archive."""

    identity: str  # the id of the image: `sha256:` and the hash of its configuration
    names: tuple[str, ...]  # as the archive has them, `repository:tag`

    def on_a_node(self) -> tuple[str, ...]:
        """Return the names as a node has them, with the registry that Docker omits."""
        return tuple(_whole(name) for name in self.names)


def _whole(name: str) -> str:
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"


def write(
    target: Path,
    name: str,
    folder: Path,
    settings: Mapping[str, object],
    *,
    owners: bool = False,
) -> ImageName:
    """Write an image archive; a file that is there is replaced only when the new one is complete.

    Args:
        target: the file.
        name: of the image, `repository:tag`.
        folder: the root of the file system, without device files.
        settings: the `config` of the image: `Entrypoint`, `Env`, `User`, ...
        owners: keep the owners of the files; otherwise root owns all.
    """

    def reproducible(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        """Remove what differs between times and machines."""
        if not owners:
            entry.uid = entry.gid = 0
        entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    layer = target.with_name(f".{target.name}.layer")
    fresh = target.with_name(f".{target.name}.new")
    try:
        with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, path.name, filter=reproducible)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        config = _configuration(settings, digest)
        identity = hashlib.sha256(config).hexdigest()
        listed = {
            "Config": f"{identity}.json",
            "RepoTags": [name],
            "Layers": [f"{digest}/layer.tar"],
        }
        with tarfile.open(fresh, "w", format=tarfile.USTAR_FORMAT) as archive:
            _put_bytes(archive, _MANIFEST, json.dumps([listed], sort_keys=True).encode())
            _put_bytes(archive, f"{identity}.json", config)
            with layer.open("rb") as file:
                archive.addfile(_member(f"{digest}/layer.tar", layer.stat().st_size), file)
        fresh.replace(target)
    finally:
        layer.unlink(missing_ok=True)
        fresh.unlink(missing_ok=True)
    return ImageName(f"sha256:{identity}", (name,))


def _configuration(settings: Mapping[str, object], layer: str) -> bytes:
    """Return the configuration of an image. Its SHA-256 is the id of the image."""
    described = {
        "architecture": architecture(),
        "os": "linux",
        "created": _CREATED,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
        "history": [{"created": _CREATED, "created_by": "sluicegate"}],
    }
    return json.dumps(described, sort_keys=True, separators=(",", ":")).encode()


def read(archive: Path) -> list[ImageName]:
    """Return the images of an archive; ValueError if the file is not one of `docker save`."""
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(_MANIFEST)
            listed: list[dict[str, Any]] = json.load(file) if file else []
    except (tarfile.TarError, KeyError) as error:
        raise ValueError(f"{archive} is no image archive: {error}") from error
    return [
        ImageName(
            # `abc.json` before Docker 25, `blobs/sha256/abc` since then
            f"sha256:{Path(image['Config']).name.removesuffix('.json')}",
            tuple(image.get("RepoTags") or ()),
        )
        for image in listed
    ]


def _put_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_member(name, len(data)), io.BytesIO(data))


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    return member
