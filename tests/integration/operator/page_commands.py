"""The commands of the pages in docs/kubernetes, as their reader copies them."""

import re
from typing import Final

from infra.workspace import CHECKOUT

PAGES: Final = tuple(
    CHECKOUT / "docs" / "kubernetes" / f"{name}.md"
    for name in (
        "install",
        "first-job",
        "upgrades",
        "runbook",
        "metrics",
        "streamingjob",
        "checkpointvolume",
        "savepoint",
    )
)
"""In the order in which they are read. What managed-clusters.md shows is tested with the charts."""

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`([^`\n]+)`")


def blocks(language: str = "") -> list[str]:
    """Return the blocks of the pages in a language, in order."""
    return [found[2] for found in _BLOCK.finditer(_text()) if found[1] == language]


def commands(program: str) -> list[str]:
    """Return the command lines of a program, each once: those of blocks, then those in the text."""
    lines = [line for block in (*blocks("sh"), *blocks()) for line in block.splitlines()]
    lines += _INLINE.findall(_BLOCK.sub("", _text()))
    shown = (line.removeprefix("$ ").partition("  #")[0].strip() for line in lines)
    return list(dict.fromkeys(line for line in shown if line.startswith(f"{program} ")))


def columns(of: str) -> list[str]:
    """Return the head of the table that a page shows as the output of a command."""
    for block in blocks():
        command, _, printed = block.partition("\n")
        if command == f"$ {of}":
            return heads(printed)
    raise AssertionError(f"no page shows the output of {of}")


def heads(printed: str) -> list[str]:
    """Return the heads of a table that kubectl has printed: they are two blanks apart, or more."""
    return re.split(r"\s{2,}", printed.splitlines()[0].strip())


def _text() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
