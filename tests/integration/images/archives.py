"""Reads the files of an image from its archive, as a container sees them.

Formats: the archive of `docker save` (manifest.json, a configuration, one tar a layer), and the OCI
image specification, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Final

from infra.images import contents
from infra.images.contents import Files

_WHITEOUT: Final = "/.wh."
_OPAQUE: Final = ".wh..wh..opq"


def merge_layers(layers: Iterable[Files]) -> Files:
    """Merge layers, from the lowest to the highest, into the files that a container sees."""
    merged: Files = {}
    for layer in layers:
        removed, hidden = _whiteouts(layer)
        for path in list(merged):
            parents = {parent.as_posix() for parent in PurePosixPath(path).parents}
            if path in removed or parents & (removed | hidden):
                del merged[path]
        merged |= {path: entry for path, entry in layer.items() if _WHITEOUT not in f"/{path}"}
    return merged


def _whiteouts(layer: Files) -> tuple[set[str], set[str]]:
    """Return the paths that a layer removes, and the folders whose content in lower layers it hides."""
    removed, hidden = set(), set()
    for path in layer:
        parent, _, name = f"/{path}".rpartition("/")
        if name == _OPAQUE:
            hidden.add(parent.lstrip("/"))
        elif f"/{name}".startswith(_WHITEOUT):
            removed.add(f"{parent}/{name[len(_WHITEOUT) - 1 :]}".lstrip("/"))
    return removed, hidden


def read(path: Path) -> tuple[dict[str, Any], Files]:
    """Return the configuration of an archived image, and the files that a container of it sees.

    Raises:
        tarfile.ReadError: its layers are compressed, as `docker save` of some engines writes them.
    """
    with tarfile.open(path, "r:") as archive:
        (image,) = json.loads(_member(archive, "manifest.json"))
        config: dict[str, Any] = json.loads(_member(archive, image["Config"]))
        offsets = [_regular(archive, name).offset_data for name in image["Layers"]]
    return config, merge_layers(contents.read(path, offset) for offset in offsets)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    return stream.read() if stream else b""


def _regular(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """Return the file of a layer; Docker before 25 links to it if two layers are identical."""
    member = archive.getmember(name)
    while member.issym():
        target = posixpath.join(posixpath.dirname(member.name), member.linkname)
        member = archive.getmember(posixpath.normpath(target))
    return member
