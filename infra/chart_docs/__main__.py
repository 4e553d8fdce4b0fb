"""Write schemas and READMEs of the charts, vendor subcharts and lint: `python -m infra.chart_docs`.

With --check nothing is written and outdated files are an error. Without helm it prints the reason and skips
vendoring and lint.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.chart_docs import helm, schema
from infra.chart_docs.values import Value, Values, ValuesError, described, read
from infra.toolchain import go_programs
from infra.workspace import outdated


def made(folder: Path = helm.FOLDER) -> Iterator[tuple[Path, str]]:
    """Yield each generated file and its text."""
    for name in helm.CHARTS:
        chart = yaml.safe_load((folder / name / "Chart.yaml").read_text(encoding="utf-8"))
        values = read(folder / name / "values.yaml")
        yield folder / name / "values.schema.json", schema.text_of(values, chart)
        yield folder / name / "README.md", readme_of(chart, values)


def readme_of(chart: Mapping[str, Any], values: Values) -> str:
    """Return a chart's README.md: description, installation and a table of values."""
    name = chart["name"]
    head = values.head.splitlines()[1:]
    lines = [
        f"# {name}",
        "",
        "<!-- Made by `make charts` of Chart.yaml and the comments of values.yaml: change those. -->",
        "",
        chart["description"],
        *(["", *head] if head else []),
        "",
        "```sh",
        "make charts        # once: puts what it includes into its charts/",
        f"helm install {name} charts/{name} --namespace sluicegate --create-namespace",
        "```",
        "",
        "| value | default | what |",
        "|---|---|---|",
        *(_row(path, value) for path, value in described(values.children)),
    ]
    return "\n".join(lines) + "\n"


def _row(path: str, value: Value) -> str:
    shown = "" if value.children else f"`{_cell(json.dumps(value.default))}`"
    words = value.hints.get("enum", (None,))
    more = ""
    if all(isinstance(word, str) for word in words):
        more = f" (`{_cell('`, `'.join(filter(None, words)))}`)"
    return f"| `{path}` | {shown} | {_cell(value.text)}{more} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def stale(folder: Path = helm.FOLDER) -> list[Path]:
    """Return the generated files that are out of date."""
    return outdated(made(folder))


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
