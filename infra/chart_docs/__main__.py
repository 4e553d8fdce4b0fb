"""Write schemas and READMEs of the charts, vendor subcharts and lint: `python -m infra.chart_docs`.

With --check nothing is written and outdated files are an error. Without helm it prints the reason and skips
vendoring and lint.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from infra.chart_docs import helm, readme, schema
from infra.chart_docs.values import ValuesError, read
from infra.toolchain import go_programs


def made(folder: Path = helm.FOLDER) -> Iterator[tuple[Path, str]]:
    """Yield each generated file and its text.

    Raises:
        ValuesError: a values.yaml cannot be described.
    """
    for name in helm.CHARTS:
        chart = yaml.safe_load((folder / name / "Chart.yaml").read_text(encoding="utf-8"))
        values = read(folder / name / "values.yaml")
        yield folder / name / "values.schema.json", schema.text_of(values, chart)
        yield folder / name / "README.md", readme.text_of(chart, values)


def stale(folder: Path = helm.FOLDER) -> list[Path]:
    """Return the generated files that are out of date."""
    return [
        path
        for path, text in made(folder)
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.chart_docs", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail if a file is out of date"
    )
    options = parser.parse_args(arguments)
    try:
        if options.check and (old := stale()):
            print("Out of date, run `make charts`:", *old, sep="\n  ", file=sys.stderr)
            return 1
        if not options.check:
            for path, text in made():
                path.write_text(text, encoding="utf-8")
        if reason := go_programs.tool_missing_reason("helm"):
            print(f"Charts are neither vendored nor linted: {reason}", file=sys.stderr)
            return 0
        helm.vendor()
        helm.lint()
    except (ValuesError, helm.HelmError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(helm.CHARTS)} charts are vendored, linted and documented.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
