"""Print the CustomResourceDefinitions, or write them as files: `python -m sluicegate_operator.crds`.

With a folder as argument it writes a file a kind there, and a list of them for kustomize. The files
of operators/crds are made so, and a test compares them. Not here: what is in them (`resources`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from sluicegate_operator.resources.kinds import KINDS, Kind

_HEAD = "# Made by `python -m sluicegate_operator.crds`; change the dataclasses of resources/ instead.\n"


def text_of(kind: Kind) -> str:
    """Return a kind's definition as YAML."""
    return _HEAD + yaml.safe_dump(kind.definition(), sort_keys=False, width=100)


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    definitions = {f"{kind.plural}.yaml": text_of(kind) for kind in KINDS}
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(definitions),
    }
    # without an ending, so that `kubectl apply -f operators/crds` passes it over
    return {**definitions, "Kustomization": _HEAD + yaml.safe_dump(listed, sort_keys=False)}


def main(arguments: list[str] | None = None) -> int:
    """Print all definitions as one stream of documents, or write them into a folder."""
    parser = argparse.ArgumentParser(prog="python -m sluicegate_operator.crds", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write a file a kind")
    folder: Path | None = parser.parse_args(arguments).folder
    if folder is None:
        sys.stdout.write("---\n".join(map(text_of, KINDS)))
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
