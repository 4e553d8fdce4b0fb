"""Writes the pages of docs/reference: `python -m infra.reference_docs`.

With --check it writes nothing and fails if a page is out of date.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from infra.reference_docs import kubernetes, library
from infra.workspace import CHECKOUT, outdated

FOLDER = CHECKOUT / "docs" / "reference"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each page."""
    yield FOLDER / "settings.md", library.settings_page()
    yield FOLDER / "cli.md", library.commands_page()
    yield FOLDER / "errors.md", library.errors_page()
    yield FOLDER / "environment.md", library.environment_page()
    yield FOLDER / "failpoints.md", library.failpoints_page()
    yield from ((FOLDER / name, text) for name, text in kubernetes.kind_pages())
    yield FOLDER / "metrics.md", kubernetes.metrics_page()
    yield FOLDER / "charts.md", kubernetes.charts_page()


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(prog="python -m infra.reference_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if outdated")
    if parser.parse_args(arguments).check:
        if old := outdated(pages()):
            print("Outdated: run `make docs`:", *old, sep="\n  ", file=sys.stderr)
        return 1 if old else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    written = [path.write_text(text, encoding="utf-8") for path, text in pages()]
    print(f"{len(written)} pages are in {FOLDER.relative_to(CHECKOUT)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
