"""Byte code for Python files of an image: its root is read-only, so that none can be kept later.

The same bytes for the same files: compiled in a process of its own in a fixed order, and checked
against the source by its hash, as times say nothing in an image. Only a Python of the image's
version can do it; with another one containers start slower, and nothing else. Called by `catalogue`,
and by itself as that process.
"""

from __future__ import annotations

import importlib
import importlib.util
import marshal
import subprocess
import sys
from pathlib import PurePosixPath
from typing import Final

if __name__ != "__main__":
    from infra.images.layers import Content, Entry, Files

_VERSION: Final = (3, 11)


def compiled(files: Files) -> Files:
    """Return the byte code of Python files, beside them; nothing under another Python."""
    if sys.version_info[:2] != _VERSION:
        print(f"  This is not Python {_VERSION}: no byte code is made, containers start slower.")
        return {}
    sources = {
        path: entry.content.read()
        for path, entry in files.items()
        if path.endswith(".py") and entry.content is not None
    }
    done = subprocess.run(
        [sys.executable, "-I", __file__],
        input=marshal.dumps(sources),
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
    )
    made: dict[str, bytes] = marshal.loads(done.stdout)  # noqa: S302 - of our own process
    return {path: Entry(Content(code)) for path, code in made.items()}


def _cached(path: str) -> str:
    source = PurePosixPath(path)
    name = f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    return (source.parent / "__pycache__" / name).as_posix()


def main() -> None:
    """Compile what standard input holds."""
    sources: dict[str, bytes] = marshal.loads(sys.stdin.buffer.read())  # noqa: S302 - see above
    # what py_compile itself writes files with; it cannot give the bytes
    importing = importlib.import_module("importlib._bootstrap_external")
    in_file = importing._code_to_hash_pyc  # noqa: SLF001 - see above
    made = {}
    for path in sorted(sources):
        try:
            code = compile(sources[path], f"/{path}", "exec", dont_inherit=True, optimize=0)
        except (SyntaxError, ValueError):
            continue  # a template or a test of the parser; nobody imports it
        digest = importlib.util.source_hash(sources[path])
        made[_cached(path)] = bytes(in_file(code, digest, checked=True))
    sys.stdout.buffer.write(marshal.dumps(made))


if __name__ == "__main__":
    main()
