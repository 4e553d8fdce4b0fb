"""Labels, annotations and objects of values reach every object of every chart."""

from typing import Any

import pytest

from infra.chart_docs import helm
from tests.integration.charts.rendering import VALUES, Charts, Document, of_kind
from tests.integration.charts.test_accepted import COMBINED

LABELS, ANNOTATIONS = {"cost": "42"}, {"example.com/owner": "streams"}
COMMON: dict[str, Any] = {"commonLabels": LABELS, "commonAnnotations": ANNOTATIONS}


def objects_without(documents: list[Document]) -> list[str]:
    """Return the objects and pod templates that lack a label or an annotation."""
    lacking = []
    for document in documents:
        places = {"": document}
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "spec" in spec.get("template", {}):
            places[" pod"] = spec["template"]
        if document["kind"] == "StreamingJob":
            places |= {f" {role}": spec[role]["template"] for role in ("driver", "executor")}
        for place, found in places.items():
            metadata = found["metadata"]
            labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
            if not (
                LABELS.items() <= labels.items() and ANNOTATIONS.items() <= annotations.items()
            ):
                lacking.append(f"{document['kind']} {document['metadata'].get('name')}{place}")
    return lacking


@pytest.mark.parametrize("chart", COMBINED)
def test_every_object_of_a_chart_has_the_common_labels_and_annotations(
    charts: Charts, chart: str
) -> None:
    assert objects_without(charts.render(chart, {**COMBINED[chart], **COMMON})) == []


@pytest.mark.parametrize("values", VALUES)
def test_global_labels_and_annotations_reach_every_object_of_the_platform(
    charts: Charts, values: str
) -> None:
    documents = charts.render("sluicegate", {"global": COMMON}, file=VALUES[values])
    assert objects_without(documents) == []


def test_the_labels_of_a_chart_win_over_global_ones(charts: Charts) -> None:
    given = {"commonLabels": LABELS, "global": {"commonLabels": {"cost": "0"}}}
    for document in charts.render("collector", given):
        assert document["metadata"]["labels"]["cost"] == "42"


@pytest.mark.parametrize("chart", helm.CHARTS)
def test_objects_of_values_are_created_with_the_release(charts: Charts, chart: str) -> None:
    mine = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-mine"},
    }
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Chart.Name }}-text'}\n"
    values = {**COMBINED.get(chart, {}), "extraObjects": [mine, text]}
    names = {d["metadata"]["name"] for d in of_kind(charts.render(chart, values), "ConfigMap")}
    assert {"sluicegate-mine", f"{chart}-text"} <= names


@pytest.mark.parametrize("values", VALUES)
def test_templates_of_claims_have_no_common_labels(charts: Charts, values: str) -> None:
    """They cannot change: an upgrade with another label would fail."""
    documents = charts.render("sluicegate", {"global": COMMON}, file=VALUES[values])
    for stateful_set in of_kind(documents, "StatefulSet"):
        for claim in stateful_set["spec"]["volumeClaimTemplates"]:
            assert LABELS.keys().isdisjoint(claim["metadata"]["labels"])
