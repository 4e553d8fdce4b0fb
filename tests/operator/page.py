"""The commands of operators/README.md, as its reader copies them.

Not here: running them (`test_page`). Called by it.
"""

import re
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = REPOSITORY / "operators" / "README.md"

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`([^`\n]+)`")


def blocks(language: str = "") -> list[str]:
    """Return the page's blocks in a language, in order."""
    return [found[2] for found in _BLOCK.finditer(_text()) if found[1] == language]


def commands(program: str) -> list[str]:
    """Return the page's command lines of a program, each once: those of blocks, then those in its text."""
    lines = [line for block in (*blocks("sh"), *blocks()) for line in block.splitlines()]
    lines += _INLINE.findall(_BLOCK.sub("", _text()))
    said = (line.removeprefix("$ ").partition("  #")[0].strip() for line in lines)
    return list(dict.fromkeys(line for line in said if line.startswith(f"{program} ")))


def columns(of: str) -> list[str]:
    """Return the head of the table that the page shows as what a command prints."""
    for block in blocks():
        command, _, printed = block.partition("\n")
        if command == f"$ {of}":
            return heads(printed)
    raise AssertionError(f"the page does not show what {of} prints")


def heads(printed: str) -> list[str]:
    """Return the heads of a table that kubectl has printed: they are two blanks apart, or more."""
    return re.split(r"\s{2,}", printed.splitlines()[0].strip())


def _text() -> str:
    return PAGE.read_text(encoding="utf-8")
