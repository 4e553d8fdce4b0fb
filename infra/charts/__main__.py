"""Write the schemas and READMEs of charts, vendor what they include, and lint: `python -m infra.charts`.

With --check nothing is written, and what is out of date is an error. Without a helm it says so and
leaves vendoring and lint out. Called by the Makefile and tests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from infra import tools
from infra.charts import helm, readme, schema
from infra.charts.values import ValuesError, read


def made(folder: Path = helm.FOLDER) -> Iterator[tuple[Path, str]]:
    """Yield each file that is made, and its text.

    Raises:
        ValuesError: a values.yaml cannot be described.
    """
    for name in helm.CHARTS:
        chart = yaml.safe_load((folder / name / "Chart.yaml").read_text(encoding="utf-8"))
        values = read(folder / name / "values.yaml")
        yield folder / name / "values.schema.json", schema.text_of(values, chart)
        yield folder / name / "README.md", readme.text_of(chart, values)


def stale(folder: Path = helm.FOLDER) -> list[Path]:
    """Return the files that are not what would be made now."""
    return [
        path
        for path, text in made(folder)
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str] | None = None) -> int:
    """Do it all, for people."""
    parser = argparse.ArgumentParser(prog="python -m infra.charts", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, refuse what is old")
    options = parser.parse_args(arguments)
    try:
        if options.check and (old := stale()):
            print("Not up to date: run `make charts`:", *old, sep="\n  ", file=sys.stderr)
            return 1
        if not options.check:
            for path, text in made():
                path.write_text(text, encoding="utf-8")
        if gap := tools.gap("helm"):
            print(f"Charts are neither vendored nor linted: {gap}", file=sys.stderr)
            return 0
        helm.vendor()
        helm.lint()
    except (ValuesError, helm.HelmError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(helm.CHARTS)} charts are vendored, linted and described.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
