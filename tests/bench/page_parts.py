"""Pieces of a report page in Markdown, and the files of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.figures import shown, spread
from tests.bench.joined import Joined

NOT_MEASURED: Final = "Not measured yet."

Plot = Callable[[str, str, str], str]
"""Adds a plot with a name, a title and its SVG; returns the Markdown that shows it."""


def write_page(page: Path, text: str, plots: Mapping[str, str]) -> None:
    """Write a page, and its plots as SVG by name in the place of those that it had."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    folder = plots_folder(page)
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, svg in plots.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


def plots_folder(page: Path) -> Path:
    """Return the folder of a page's plots."""
    return page.with_suffix(".plots")


def command(name: str, options: str = "") -> str:
    """Return the command that measures a part."""
    return f'`make bench ARGS="{" ".join(filter(None, ("--only", name, options)))}"`'


def cell(joined: Joined, workload: str, contender: str, figure: str, digits: int) -> str:
    """Return the spread of a figure, empty if no run has it."""
    values = spread(joined.runs, workload, contender, figure)
    return "" if values is None else shown(values, digits)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield a table, without the columns that are empty."""
    cells = [[_escaped(value) for value in row] for row in rows]
    used = [
        column
        for column, head in enumerate(heads)
        if not head or any(row[column] for row in cells) or not cells
    ]
    yield _row([heads[column] for column in used])
    yield "|---" * len(used) + "|"
    for row in cells:
        yield _row([row[column] for column in used])


def _escaped(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def capital(text: str) -> str:
    """Return text with a capital first letter."""
    return text[:1].upper() + text[1:]
