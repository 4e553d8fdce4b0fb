"""The pages of the project, and what is in them: blocks of code, commands, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra.workspace import CHECKOUT

DOCS: Final = CHECKOUT / "docs"
PAGES: Final = sorted([CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])

_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`([^`\n]+)`")
_HEREDOC: Final = re.compile(r"<<'(\w+)'.*?^\1$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """Return a page's path in the repository, for the ids of tests."""
    return page.relative_to(CHECKOUT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a page in a language, in order."""
    return [found[3] for found in _BLOCK.finditer(_text(page)) if found[2] == language]


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _BLOCK.sub("", _text(page))


def inline_code(page: Path) -> list[str]:
    """Return the inline code of a page, in order."""
    return _INLINE.findall(prose(page))


def commands(page: Path) -> Iterator[str]:
    """Yield the commands of a page: lines of its shell blocks, without comments, and inline code."""
    for block in blocks(page, "sh"):
        lines = _HEREDOC.sub("", block).replace("\\\n", " ").splitlines()
        yield from (re.sub(r"\s+#.*", "", line).strip() for line in lines)
    yield from inline_code(page)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")
