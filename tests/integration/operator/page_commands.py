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
        "alerts",
        "streamingjob",
        "checkpointvolume",
        "savepoint",
    )
)
"""In reading order; the blocks of managed-clusters.md are tested with the charts."""

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`([^`\n]+)`")


def blocks(language: str = "") -> list[str]:
    """Return the blocks of the pages in a language, in order."""
    return [match[2] for match in _BLOCK.finditer(_text()) if match[1] == language]


def commands(program: str) -> list[str]:
    """Return the distinct command lines of a program, first those of blocks and then those in the text."""
    lines = [line for block in (*blocks("sh"), *blocks()) for line in block.splitlines()]
    lines += _INLINE.findall(_BLOCK.sub("", _text()))
    shown = (line.removeprefix("$ ").partition("  #")[0].strip() for line in lines)
    return list(dict.fromkeys(line for line in shown if line.startswith(f"{program} ")))


def shown_columns(command: str) -> list[str]:
    """Return the column names of the table that a page shows as the output of a command."""
    for block in blocks():
        line, _, output = block.partition("\n")
        if line == f"$ {command}":
            return column_names(output)
    raise AssertionError(f"no page shows the output of {command}")


def column_names(output: str) -> list[str]:
    """Return the column names of a table that kubectl printed, which two or more blanks separate."""
    return re.split(r"\s{2,}", output.splitlines()[0].strip())


def _text() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
