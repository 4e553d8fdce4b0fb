"""Renders charts with helm and gives tests access to the manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra.chart_docs import helm

Document = dict[str, Any]

# of C where there is one: definitions are thousands of lines
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

UMBRELLA: Final = helm.FOLDER / "sluicegate"
VALUES: Final[Mapping[str, Path | None]] = {
    "default": None,
    "production": UMBRELLA / "values-production.yaml",
    "everything on": UMBRELLA / "ci" / "tls-scram-values.yaml",
    "external": UMBRELLA / "ci" / "external-values.yaml",
}
"""The sets of values that the umbrella is shipped with."""


@dataclass(frozen=True)
class Charts:
    """Charts with what they include, in a folder of the tests."""

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
        """Return the manifests, hooks and tests among them."""
        said = self.arguments(chart, values, file)
        text = helm.run(["template", release, *said, "--namespace", namespace])
        return [found for found in yaml.load_all(text, _LOADER) if found]

    def arguments(
        self, chart: str, values: Mapping[str, Any] | None = None, file: Path | None = None
    ) -> list[str]:
        """Return helm's arguments for a chart and its values."""
        given = [f"--set-json={key}={json.dumps(value)}" for key, value in (values or {}).items()]
        return [str(self.folder / chart), *(["--values", str(file)] if file else []), *given]

    def refusal(self, chart: str, values: Mapping[str, Any]) -> str:
        """Return what helm says to values that it does not take."""
        with pytest.raises(helm.HelmError) as refused:
            self.render(chart, values)
        return str(refused.value)


def of_kind(documents: Sequence[Document], kind: str, name: str = "") -> list[Document]:
    """Return the manifests of a kind, of one name if it is given."""
    return [
        found
        for found in documents
        if found["kind"] == kind and name in ("", found["metadata"]["name"])
    ]


def the(documents: Sequence[Document], kind: str, name: str = "") -> Document:
    """Return the only manifest of a kind, and of a name."""
    (found,) = of_kind(documents, kind, name)
    return found


def hooks_of(document: Document) -> list[str]:
    """Return when a manifest is made, if it is a hook."""
    said = document["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    return said.split(",") if said else []


def pods(documents: Sequence[Document]) -> Iterator[Document]:
    """Yield the pods that manifests would make, each with the name of what makes it."""
    for found in documents:
        if found["kind"] == "Pod":
            yield found
        elif "template" in found.get("spec", {}):
            template = found["spec"]["template"]
            meta = {**template["metadata"], "name": f"{found['metadata']['name']}-pod"}
            claims = [
                {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}}
                for claim in found["spec"].get("volumeClaimTemplates", ())
                for name in [claim["metadata"]["name"]]
            ]
            # as a StatefulSet's controller does it
            spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], *claims]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def selected(policy: Document, pod: Document) -> bool:
    """Say whether a NetworkPolicy or budget is about a pod: by matchLabels."""
    selector = policy["spec"].get("podSelector") or policy["spec"].get("selector")
    wanted = selector.get("matchLabels", {})
    return bool(wanted) and wanted.items() <= pod["metadata"]["labels"].items()
