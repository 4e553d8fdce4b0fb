"""Renders charts with helm and gives tests access to the manifests."""

from __future__ import annotations

import itertools
import json
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra.chart_docs import helm

Document = dict[str, Any]

# the C loader if there is one, because CRDs are thousands of lines long
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

UMBRELLA: Final = helm.FOLDER / "sluicegate"
PARTS: Final = ("kafka", "mysql", "object-store", "collector")
"""The charts of the servers, by the names of their values in the umbrella chart."""

VALUES: Final[Mapping[str, Path | None]] = {
    "default": None,
    "production": UMBRELLA / "values-production.yaml",
    "everything on": UMBRELLA / "ci" / "tls-scram-values.yaml",
    "external": UMBRELLA / "ci" / "external-values.yaml",
    "console": UMBRELLA / "ci" / "console-values.yaml",
    "strimzi": UMBRELLA / "ci" / "strimzi-values.yaml",
}
"""The sets of values that the umbrella chart ships with."""


@dataclass(frozen=True)
class Charts:
    """Charts with their vendored dependencies, in a folder of the tests."""

    folder: Path

    def render(
        self,
        chart: str,
        values: Mapping[str, Any] | None = None,
        *,
        file: Path | None = None,
        release: str = "sluicegate",
        namespace: str = "sluicegate",
    ) -> list[Document]:
        """Return all manifests, including hooks and tests."""
        arguments = self.arguments(chart, values, file)
        text = helm.run(["template", release, *arguments, "--namespace", namespace])
        return [document for document in yaml.load_all(text, _LOADER) if document]

    def arguments(
        self, chart: str, values: Mapping[str, Any] | None = None, file: Path | None = None
    ) -> list[str]:
        """Return helm's arguments for a chart and its values."""
        options = [f"--set-json={key}={json.dumps(value)}" for key, value in (values or {}).items()]
        return [str(self.folder / chart), *(["--values", str(file)] if file else []), *options]

    def names_after(self, command: str) -> set[str]:
        """Return the kind and the name of each object that the release of `helm upgrade ...` has."""
        words = shlex.split(command)
        release, chart = words[2], words[3].removeprefix("charts/")
        given = [value for option, value in itertools.pairwise(words) if option == "--set"]
        values = {path: yaml.safe_load(text) for path, _, text in (v.partition("=") for v in given)}
        return {
            f"{document['kind']} {document['metadata']['name']}"
            for document in self.render(chart, values, release=release)
        }

    def refusal(self, chart: str, values: Mapping[str, Any]) -> str:
        """Return helm's error for values that it rejects."""
        with pytest.raises(helm.HelmError) as error:
            self.render(chart, values)
        return str(error.value)


def vendored_charts(folder: Path) -> Charts:
    """Copy the charts into a folder and vendor their dependencies there; the checkout is not changed."""
    generated = shutil.ignore_patterns("charts")
    shutil.copytree(helm.FOLDER, folder, ignore=generated, dirs_exist_ok=True)
    helm.vendor(folder)
    return Charts(folder)


def of_kind(documents: Sequence[Document], kind: str, name: str = "") -> list[Document]:
    """Return the manifests of a kind, or only those with a name."""
    return [
        document
        for document in documents
        if document["kind"] == kind and name in ("", document["metadata"]["name"])
    ]


def only_of_kind(documents: Sequence[Document], kind: str, name: str = "") -> Document:
    """Return the only manifest of a kind, or of a kind and name."""
    (document,) = of_kind(documents, kind, name)
    return document


def hooks_of(document: Document) -> list[str]:
    """Return the hook events of a manifest; empty if it is not a hook."""
    events = document["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    return events.split(",") if events else []


def pods(documents: Sequence[Document]) -> Iterator[Document]:
    """Yield the pods that the manifests would create, each named after its owner."""
    for document in documents:
        owner = document.get("spec", {})
        if document["kind"] == "CronJob":
            owner = owner["jobTemplate"]["spec"]
        if document["kind"] == "Pod":
            yield document
        elif "containers" in owner.get("template", {}).get("spec", {}):
            template = owner["template"]
            metadata = {**template["metadata"], "name": f"{document['metadata']['name']}-pod"}
            claims = [
                {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}}
                for claim in owner.get("volumeClaimTemplates", ())
                for name in [claim["metadata"]["name"]]
            ]
            # as a StatefulSet's controller does it
            spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], *claims]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def selects(policy: Document, pod: Document) -> bool:
    """Return whether a NetworkPolicy or PodDisruptionBudget selects a pod by matchLabels."""
    selector = policy["spec"].get("podSelector") or policy["spec"].get("selector")
    labels = selector.get("matchLabels", {})
    return bool(labels) and labels.items() <= pod["metadata"]["labels"].items()
