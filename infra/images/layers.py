"""Layers of an image: sets of files, and the tar that holds one, the same bytes for the same files.

Not here: what is in which layer (`catalogue`), nor the archive of a whole image (`archive`). Format:
the OCI image specification, "Image Layer Filesystem Changeset". Called by whatever makes a layer.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

EPOCH: Final = 1767225600
"""The time of every file, 2026-01-01T00:00:00Z: when something was built is no part of what it is."""

FOLDER_MODE: Final = 0o755
FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755

_WHITEOUT: Final = ".wh."


@dataclass(frozen=True)
class Content:
    """The bytes of a file: given, or a part of a file of this machine.

    Args:
        data: the bytes, unless `file` is given.
        file: where they are.
        offset: of the first one in it.
        size: how many; of `file` only.
    """

    data: bytes = field(default=b"", repr=False)
    file: Path | None = None
    offset: int = 0
    size: int = 0

    @classmethod
    def of(cls, path: Path) -> Content:
        """Return the content of a whole file."""
        return cls(file=path, size=path.stat().st_size)

    @property
    def length(self) -> int:
        """How many bytes there are."""
        return len(self.data) if self.file is None else self.size

    def open(self) -> BinaryIO:
        """Return a stream that stands at the first byte; it may go on behind the last one."""
        if self.file is None:
            return io.BytesIO(self.data)
        stream = self.file.open("rb")
        stream.seek(self.offset)
        return stream

    def read(self) -> bytes:
        """Return the bytes."""
        with self.open() as stream:
            return stream.read(self.length)


@dataclass(frozen=True)
class Entry:
    """One file, folder or symbolic link.

    Args:
        content: of a file; None: it is none.
        target: of a symbolic link.
        mode: its permissions; set-uid and set-gid are never written.
        uid: who owns it.
        gid: which group does.
    """

    content: Content | None = None
    target: str = ""
    mode: int = FILE_MODE
    uid: int = 0
    gid: int = 0

    @property
    def is_folder(self) -> bool:
        """Whether it is neither a file nor a link."""
        return self.content is None and not self.target

    def same_as(self, other: Entry) -> bool:
        """Say whether an image with this one need not hold the other one again."""
        if replace(self, content=None) != replace(other, content=None):
            return False
        if self.content is None or other.content is None:
            return self.content is other.content
        return (
            self.content.length == other.content.length
            and self.content.read() == other.content.read()
        )


Files = dict[str, Entry]
"""Entries by their paths, without a slash in front."""


def text(words: str, mode: int = FILE_MODE) -> Entry:
    """Return a file that holds a text."""
    return Entry(Content(words.encode()), mode=mode)


def folder(mode: int = FOLDER_MODE, owner: int = 0) -> Entry:
    """Return a folder that an account owns with its group of the same number."""
    return Entry(mode=mode, uid=owner, gid=owner)


def link(target: str) -> Entry:
    """Return a symbolic link."""
    return Entry(target=target, mode=0o777)


def read(tar: Path, at: int = 0) -> Files:
    """Return what is in a tar that is not compressed; a hard link becomes a file of its own.

    Args:
        tar: the file.
        at: where in it the tar begins, in bytes.
    """
    found: Files = {}
    with tar.open("rb") as stream, tarfile.open(fileobj=_at(stream, at), mode="r:") as archive:
        for member in archive:
            path = member.name.removeprefix("./").strip("/")
            if path in ("", "."):
                continue
            entry = Entry(mode=member.mode, uid=member.uid, gid=member.gid)
            if member.isreg():
                content = Content(file=tar, offset=member.offset_data, size=member.size)
                found[path] = replace(entry, content=content)
            elif member.issym():
                found[path] = replace(entry, target=member.linkname)
            elif member.islnk():
                found[path] = found[member.linkname.removeprefix("./").strip("/")]
            elif member.isdir():
                found[path] = entry
    return found


def _at(stream: BinaryIO, offset: int) -> BinaryIO:
    stream.seek(offset)
    return stream


def difference(below: Files, above: Files) -> Files:
    """Return the layer that makes `above` of `below`: what is new or other, and what is gone."""
    layer = {
        path: entry
        for path, entry in above.items()
        if path not in below or not below[path].same_as(entry)
    }
    gone = sorted(below.keys() - above.keys())
    for path in gone:
        parent = PurePosixPath(path).parent.as_posix()
        if parent == "." or parent in above:
            name = PurePosixPath(path).name
            layer["/".join(filter(None, (parent.strip("."), _WHITEOUT + name)))] = Entry(Content())
    return layer


def laid(layers: Iterable[Files]) -> Files:
    """Return what a container sees of layers, the lowest first."""
    whole: Files = {}
    for above in layers:
        for path, entry in above.items():
            parent, _, name = path.rpartition("/")
            if name.startswith(_WHITEOUT):
                gone = f"{parent}/{name.removeprefix(_WHITEOUT)}".lstrip("/")
                whole = {p: e for p, e in whole.items() if p != gone and not _is_in(p, gone)}
            else:
                whole[path] = entry
    return whole


def _is_in(path: str, place: str) -> bool:
    return path.startswith(f"{place}/")


def write(layer: Mapping[str, Entry], tar: Path) -> str:
    """Write a layer.

    Folders that lead to a file are written too, so that nobody has to guess what they are.

    Args:
        layer: its entries.
        tar: where it is written.

    Returns:
        Its digest, `sha256:` and hex.
    """
    complete = dict(layer)
    for path in layer:
        for parent in PurePosixPath(path).parents:
            if parent.as_posix() != ".":
                complete.setdefault(parent.as_posix(), folder())
    with (
        tar.open("wb") as stream,
        tarfile.open(fileobj=stream, mode="w:", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(complete):
            _add(archive, path, complete[path])
    return digest(tar)


def _add(archive: tarfile.TarFile, path: str, entry: Entry) -> None:
    info = tarfile.TarInfo(path)
    info.mtime, info.mode = EPOCH, entry.mode & 0o1777
    info.uid, info.gid = entry.uid, entry.gid
    if entry.content is not None:
        info.size = entry.content.length
        with entry.content.open() as stream:
            archive.addfile(info, stream)
        return
    if entry.target:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
    else:
        info.type = tarfile.DIRTYPE
    archive.addfile(info)


def digest(path: Path) -> str:
    """Return a file's digest as images write it."""
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def tree(base: Path, below: str, keep: Callable[[str], bool] = lambda _: True) -> Files:
    """Return the files of a folder of this machine, as root's, without what leads to no file.

    Args:
        base: the folder.
        below: where it is in the image.
        keep: whether a file is wanted, by its path below the folder.
    """
    found: Files = {}
    for path in _files(base):
        name = path.relative_to(base).as_posix()
        if keep(name):
            mode = PROGRAM_MODE if path.stat().st_mode & 0o100 else FILE_MODE
            found[f"{below}/{name}"] = Entry(Content.of(path), mode=mode)
    return found


def _files(base: Path) -> Iterator[Path]:
    return (path for path in sorted(base.rglob("*")) if path.is_file())
