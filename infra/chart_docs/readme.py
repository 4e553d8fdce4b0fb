"""Generates a chart's README.md: description, installation and a table of values.

charts/README.md is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.chart_docs.values import Value, Values


def text_of(chart: Mapping[str, Any], values: Values) -> str:
    """Return the page's text.

    Args:
        chart: what its Chart.yaml says.
        values: of the chart.
    """
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
        *_rows(values.children, ""),
    ]
    return "\n".join(lines) + "\n"


def _rows(children: Sequence[Value], above: str) -> Iterator[str]:
    for child in children:
        path = f"{above}{child.name}"
        if child.text or not child.children:
            shown = "" if child.children else f"`{_cell(json.dumps(child.default))}`"
            more = (
                f" (`{_cell('`, `'.join(filter(None, child.hints['enum'])))}`)"
                if _words(child)
                else ""
            )
            yield f"| `{path}` | {shown} | {_cell(child.text)}{more} |"
        yield from _rows(child.children, f"{path}.")


def _words(value: Value) -> bool:
    return all(isinstance(one, str) for one in value.hints.get("enum", (None,)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
