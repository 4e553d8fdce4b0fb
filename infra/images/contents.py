"""The files of an image, read from the tar of a file system or of a layer."""

import io
import tarfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

FILE_MODE: Final = 0o644


@dataclass(frozen=True)
class Content:
    """The bytes of a file: in memory, or a section of a file of this machine."""

    data: bytes = field(default=b"", repr=False)  # the bytes, unless `file` is set
    file: Path | None = None  # the file that contains them
    offset: int = 0  # of the first byte in `file`
    size: int = 0  # number of bytes in `file`

    @property
    def length(self) -> int:
        """The number of bytes."""
        return len(self.data) if self.file is None else self.size

    def open(self) -> BinaryIO:
        """Return a stream at the first byte; it may continue after the last one."""
        if self.file is None:
            return io.BytesIO(self.data)
        stream = self.file.open("rb")
        stream.seek(self.offset)
        return stream

    def read(self) -> bytes:
        """Return what an uncompressed tar contains, which begins `at` bytes into the file.

        A hard link becomes a file of its own.
        """
        with self.open() as stream:
            return stream.read(self.length)


@dataclass(frozen=True)
class Entry:
    """A file, a folder or a symbolic link."""

    content: Content | None = None  # of a file; None for a folder or a link
    target: str = ""  # of a symbolic link
    mode: int = FILE_MODE  # its permissions
    uid: int = 0  # its owner
    gid: int = 0  # its group


Files = dict[str, Entry]
"""Entries by path, without a leading slash."""


def text(words: str) -> Entry:
    """Return a file with this text."""
    return Entry(Content(words.encode()))


def read(tar: Path, at: int = 0) -> Files:
    """Return what an uncompressed tar contains, which begins `at` bytes into the file.

    A hard link becomes a file of its own.
    """
    found: Files = {}
    with tar.open("rb") as stream:
        stream.seek(at)
        with tarfile.open(fileobj=stream, mode="r:") as members:
            for member in members:
                path = _path(member.name)
                entry = Entry(mode=member.mode, uid=member.uid, gid=member.gid)
                if not path:
                    continue
                if member.isreg():
                    content = Content(file=tar, offset=member.offset_data, size=member.size)
                    found[path] = replace(entry, content=content)
                elif member.issym():
                    found[path] = replace(entry, target=member.linkname)
                elif member.islnk():
                    found[path] = found[_path(member.linkname)]
                elif member.isdir():
                    found[path] = entry
    return found


def _path(name: str) -> str:
    path = name.removeprefix("./").strip("/")
    return "" if path == "." else path
