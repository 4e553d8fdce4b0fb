"""Builds images and keeps their archives, each under a key of its inputs.

An image whose archive has the key of this checkout is not built again.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.images import buildkit, contents, context, sbom
from infra.images.catalog import HERE, SCRIPTS, VERSION, Image
from infra.images.contents import Files
from infra.offline import debian_base
from infra.toolchain.host import HostError
from infra.workspace import CHECKOUT, cache_folder, locked

_KEPT: Final = 2
"""Archives of an image that are kept, the newest ones: clones of this user share the cache."""


@dataclass(frozen=True)
class Built:
    """An image that was built."""

    archive: Path  # as `docker save` writes it
    identity: str  # its id, `sha256:` and hex
    size: int  # of its files, in bytes


def folder() -> Path:
    """Return the folder of the archives."""
    return cache_folder() / "images"


def built(image: Image) -> Built | None:
    """Return an image if it was built from the inputs that this checkout has now."""
    archive = _archive(image)
    note = archive.with_suffix(".json")
    if not archive.is_file() or not note.is_file():
        return None
    return Built(archive, **json.loads(note.read_text(encoding="utf-8")))


def build(image: Image, *, fresh: bool = False) -> Built:
    """Build an image unless it was built before.

    Args:
        image: the image.
        fresh: build it in any case, with the packages that Debian has now.

    Raises:
        HostError: there is no engine, the context cannot be filled, or a build step fails.
        BuildError: a Go program cannot be built.
        JarError: a jar cannot be fetched.
        ServiceError: the classes that a driver loads could not be recorded.
    """
    folder().mkdir(parents=True, exist_ok=True)
    with locked(folder() / ".lock"):  # two builds at once would share the cores
        found = built(image)
        if found and not fresh:
            os.utime(found.archive)
            return found
        began = time.monotonic()
        print(f"{image.reference} ...", flush=True)
        result = _build(image, fresh=fresh)
        _remove_old_archives(image)
        buildkit.remove_replaced()
        print(f"  built in {time.monotonic() - began:.0f} s: {result.archive}", flush=True)
        return result


def _build(image: Image, *, fresh: bool) -> Built:
    """Build the image without its SBOM, derive the SBOM from its files, and add it."""
    archive, chosen = _archive(image), buildkit.chosen_base()
    buildkit.start_engine()
    base = buildkit.base(chosen, image.suite, fresh=fresh)
    source = context.prepare(image)
    with _scratch(archive, "files") as tar:
        again = ["--no-cache"] if fresh else []
        output = f"type=tar,dest={tar}"
        buildkit.build(image, source, base, *again, "--target", "content", "--output", output)
        files = contents.read(tar)
        check_series(image, files)
        document = sbom.document(f"sluicegate/{image.name}", VERSION, files)
    target = source / context.SBOM / Path(sbom.path_of(image.name)).name
    target.write_text(document, encoding="utf-8")
    buildkit.build(image, source, base, "--tag", image.reference)
    with _scratch(archive, "image") as saved:
        identity = buildkit.save(image, saved)
        size = sum(entry.content.length for entry in files.values() if entry.content)
        size += len(document.encode())
        note = json.dumps({"identity": identity, "size": size})
        archive.with_suffix(".json").write_text(note, encoding="utf-8")
        saved.rename(archive)
    return Built(archive, identity, size)


def check_series(image: Image, files: Files) -> None:
    """Raise HostError if the image has another release series of its server than the pinned one."""
    if image.pinned is None:
        return
    package, series = image.pinned
    found = dict(sbom.packages(files)).get(package, "no version")
    if not found.startswith(f"{series}."):
        raise HostError(
            f"{image.reference} must have {package} {series}, and Debian {image.suite} has {found}. "
            "The image was not built: a server of another series upgrades its data in one direction only. "
            "Keep using an image that is built, or change infra/versions.py and "
            "follow docs/operations/backups.md."
        )


@contextmanager
def _scratch(archive: Path, name: str) -> Iterator[Path]:
    """Yield the path of a file next to an archive, and remove the file."""
    path = archive.with_name(f".{archive.stem}-{name}-{os.getpid()}.tar")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


_TOOLCHAIN: Final = tuple(
    CHECKOUT / "infra" / "toolchain" / name
    for name in ("go_build.py", "go_programs.py", "javac.py", "patches")
)
"""What builds the programs in the images, with the patches of the store."""


def _archive(image: Image) -> Path:
    return folder() / f"{image.name}-{_key(image)}.tar"


def _key(image: Image) -> str:
    """Return a key of all inputs of an image that are known before anything is fetched or built."""
    code = (*sorted(HERE.glob("*.py")), Path(debian_base.__file__), *_TOOLCHAIN)
    inputs = (*code, CHECKOUT / "infra" / "versions.py", SCRIPTS, image.recipe, *image.inputs)
    words = [image.reference, buildkit.chosen_base(), debian_base.architecture()]
    for path in _files(inputs):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        words += [path.relative_to(CHECKOUT).as_posix(), digest]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _files(inputs: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of files and folders in order, without caches."""
    for path in inputs:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and not {"__pycache__", ".venv"} & set(file.parts):
                yield file


def _remove_old_archives(image: Image) -> None:
    archives = folder().glob(f"{image.name}-*.tar")
    for old in sorted(archives, key=lambda path: -path.stat().st_mtime)[_KEPT:]:
        old.with_suffix(".json").unlink(missing_ok=True)
        old.unlink(missing_ok=True)
