"""Makes images: their parts as layers, their document, and the archive; each kept by what it is made of.

A part that is there is not made again, so a change of the library costs one small layer and the
archive. Not here: what an image is (`catalogue`). Called by `__main__`, and by infra.kind for the
archives.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.images import archive, debian, layers, sbom
from infra.images.archive import Tar
from infra.images.catalogue import VERSION, Image
from infra.images.debian import chosen_way
from infra.images.parts import Part, sources
from infra.work import CHECKOUT, cache_folder

_HERE: Final = Path(__file__).parent
_KEPT: Final = 2
"""Archives of an image that are kept, the newest first: clones of this user share the cache."""

_KEPT_LAYERS_S: Final = 2 * 24 * 3600.0
"""How long a layer is kept that no image was made of."""

_OF_LAYERS: Final = (
    *(
        "bytecode.py",
        "collector",
        "collector.py",
        "debian.py",
        "files",
        "keystore.py",
        "layers.py",
        "parts.py",
    ),
    "wheels.py",
)
"""What makes layers; the rest of this package puts them together."""


@dataclass(frozen=True)
class Made:
    """An image that is made.

    Args:
        archive: its archive.
        identity: its id, `sha256:` and hex.
        size: of its files, in bytes.
    """

    archive: Path
    identity: str
    size: int


def folder() -> Path:
    """Return where archives are."""
    return cache_folder() / "images"


def archive_path(image: Image) -> Path:
    """Return where the archive of this checkout's image is, or will be."""
    return folder() / f"{image.name}-{_key(image)}.tar"


def made(image: Image) -> Made | None:
    """Return an image if it is made of what this checkout holds now."""
    target = archive_path(image)
    note = target.with_suffix(".json")
    if not target.is_file() or not note.is_file():
        return None
    said = json.loads(note.read_text(encoding="utf-8"))
    return Made(target, said["identity"], said["size"])


def make(image: Image, *, fresh: bool = False) -> Made:
    """Make an image unless it is there.

    Args:
        image: which.
        fresh: make its archive anew all the same.

    Raises:
        RootError: no Debian.
        WheelError: no Python packages.
        BuildError: a program of Go cannot be built.
        JarError: no jars.
    """
    folder().mkdir(parents=True, exist_ok=True)
    with _alone(image):
        found = made(image)
        if found and not fresh:
            os.utime(found.archive)
            return found
        began = time.monotonic()
        print(f"{image.reference}: {image.title}", flush=True)
        tars = [_layer(part) for part in image.parts()]
        result = _put_together(image, tars)
        _clean(image)
        took = time.monotonic() - began
        print(f"  made in {took:.0f} s, {result.size / 1e6:.0f} MB: {result.archive}", flush=True)
        return result


def _put_together(image: Image, tars: list[Tar]) -> Made:
    whole = layers.laid(layers.read(tar.path) for tar in tars)
    document = layers.text(sbom.document(f"sluicegate/{image.name}", VERSION, whole))
    last = {sbom.path_of(image.name): document}
    whole |= last
    target = archive_path(image)
    top = target.with_name(f".{target.stem}-{os.getpid()}.layer")
    scratch = top.with_suffix(".tar")
    try:
        tars.append(Tar(top, layers.write(last, top), "What is in this image"))
        labels, environment = image.labels(), image.environment()
        settings = dataclasses.replace(image.settings, labels=labels, environment=environment)
        config = archive.configuration(settings, tars, debian.architecture())
        identity = archive.write(scratch, image.reference, config, tars)
        size = sum(entry.content.length for entry in whole.values() if entry.content)
        note = target.with_suffix(".json")
        note.write_text(json.dumps({"identity": identity, "size": size}), encoding="utf-8")
        scratch.rename(target)
    finally:
        top.unlink(missing_ok=True)
        scratch.unlink(missing_ok=True)
    return Made(target, identity, size)


def _layer(part: Part) -> Tar:
    """Return a part's layer; made unless it is there."""
    target = folder() / "layers" / f"{_layer_key(part)}.tar"
    note = target.with_suffix(".digest")
    if target.is_file() and note.is_file():
        os.utime(target)
        return Tar(target, note.read_text(encoding="utf-8"), part.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"  {part.name} ...", flush=True)
    scratch = target.with_name(f".{target.stem}-{os.getpid()}.tar")
    try:
        digest = layers.write(part.make(), scratch)
        note.write_text(digest, encoding="utf-8")
        scratch.rename(target)
    finally:
        scratch.unlink(missing_ok=True)
    return Tar(target, digest, part.name)


def _layer_key(part: Part) -> str:
    """Return a key of what a layer is made of: its recipe, its roots' bytes, its inputs."""
    roots = [layers.digest(root.tar()) for root in part.roots]
    return _hashed([part.name, _recipe(_OF_LAYERS), *roots, *_contents(part.inputs)])


def _key(image: Image) -> str:
    """Return a key of an image that can be told before anything is fetched or made."""
    words = [image.reference, chosen_way(), debian.architecture(), _recipe()]
    for part in image.parts():
        words += [part.name, repr(part.roots), *_contents(part.inputs)]
    return _hashed(words)


def _recipe(names: tuple[str, ...] = ()) -> str:
    """Return a hash of how images are made, or of those files of this package alone."""
    mine = (
        [_HERE / name for name in names] if names else [_HERE, CHECKOUT / "infra" / "versions.py"]
    )
    return _hashed(_contents(tuple(path for path in sources(mine) if path.suffix != ".md")))


def _contents(inputs: tuple[Path, ...]) -> list[str]:
    words = []
    for path in sources(inputs):
        words += [path.relative_to(CHECKOUT).as_posix(), layers.digest(path)]
    return words


def _hashed(words: list[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _clean(image: Image) -> None:
    """Remove archives that newer ones replaced, and layers that nothing used for long."""
    found = sorted(folder().glob(f"{image.name}-*.tar"), key=lambda path: -path.stat().st_mtime)
    for old in found[_KEPT:]:
        old.with_suffix(".json").unlink(missing_ok=True)
        old.unlink(missing_ok=True)
    for layer in (folder() / "layers").glob("*.tar"):
        if time.time() - layer.stat().st_mtime > _KEPT_LAYERS_S:
            layer.with_suffix(".digest").unlink(missing_ok=True)
            layer.unlink(missing_ok=True)


@contextmanager
def _alone(image: Image) -> Iterator[None]:
    """Hold the only right to make an image in this cache."""
    with (folder() / f".{image.name}.lock").open("w", encoding="utf-8") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        yield
