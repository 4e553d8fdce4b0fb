"""Image archives without an engine or a builder: a folder becomes an image of one layer.

The same folder gives the same bytes, so an image's id says what is in it. Not here: the format
(infra.images.archive). Called by `systemimages`, `node`, `loading`.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.images import archive as images
from infra.images.debian import architecture

_MANIFEST: Final = "manifest.json"


@dataclass(frozen=True)
class ImageName:
    """What an archive holds.

    Args:
        identity: `sha256:` and the hash of the configuration: an image's id.
        names: as the archive writes them, `repository:tag`.
    """

    identity: str
    names: tuple[str, ...]

    def on_a_node(self) -> tuple[str, ...]:
        """Return the names as a node knows them, with the registry that Docker leaves out."""
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
    """Write an image archive.

    Args:
        target: the file; what it replaces is replaced when all is written.
        name: of the image, `repository:tag`.
        folder: becomes the root of the file system. No device files.
        settings: the image's `config`: `Entrypoint`, `Env`, `User`, ...
        owners: keep the files' owners; False: root owns all.

    Raises:
        OSError: a file cannot be read, or there is no room.
    """
    layer = target.with_name(f".{target.name}.layer")
    fresh = target.with_name(f".{target.name}.new")
    try:
        with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
            for path in _below(folder):
                _put(tar, folder, path, owners=owners)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        layers = [images.Tar(layer, f"sha256:{digest}", "sluicegate")]
        config = images.whole(settings, layers, architecture())
        identity = images.write(fresh, name, config, layers)
        fresh.replace(target)
    finally:
        layer.unlink(missing_ok=True)
        fresh.unlink(missing_ok=True)
    return ImageName(identity, (name,))


def read(archive: Path) -> list[ImageName]:
    """Return what an archive holds.

    Raises:
        ValueError: it is none of `docker save`'s format.
    """
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(_MANIFEST)
            listed: list[dict[str, Any]] = json.load(file) if file else []
    except (tarfile.TarError, KeyError) as error:
        raise ValueError(f"{archive} is no image archive: {error}") from error
    return [
        ImageName(
            # `abc.json` of old, `blobs/sha256/abc` since Docker 25
            f"sha256:{Path(image['Config']).name.removesuffix('.json')}",
            tuple(image.get("RepoTags") or ()),
        )
        for image in listed
    ]


def _below(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, parents first, always in the same order."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_socket():
            continue  # which no archive can hold
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _put(tar: tarfile.TarFile, folder: Path, path: Path, *, owners: bool) -> None:
    entry = tar.gettarinfo(path, arcname=str(path.relative_to(folder)))
    if not owners:
        entry.uid = entry.gid = 0
    # what differs from one time or machine to the next
    entry.mtime = 0
    entry.uname = entry.gname = ""
    if entry.isreg():
        with path.open("rb") as file:
            tar.addfile(entry, file)
    else:
        tar.addfile(entry)
