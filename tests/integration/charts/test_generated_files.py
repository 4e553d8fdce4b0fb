"""Schemas and READMEs are what `make charts` would make of the values, and say what is so."""

import json
from pathlib import Path

import pytest
import yaml

from infra.chart_docs import helm, schema
from infra.chart_docs.__main__ import stale
from infra.chart_docs.values import ValuesError, read
from tests.integration.charts.rendering import Charts

SPEC = schema.of_crd("streamingjobs")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "values.yaml"
    path.write_text(f"# head\n\n{text}")
    return path


def test_schemas_and_readmes_are_fresh() -> None:
    assert stale() == []


def test_the_schema_of_a_job_has_every_field_of_the_crd() -> None:
    definition = yaml.safe_load((schema.CRDS / "streamingjobs.yaml").read_text())
    version = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = set(version["properties"]["spec"]["properties"])
    made = json.loads((helm.FOLDER / "job" / "values.schema.json").read_text())
    above = {"image", "imagePullPolicy", "imagePullSecrets"}
    assert set(made["properties"]["spec"]["properties"]) == fields - above


def test_an_exclusive_bound_is_said_as_json_schema_says_it() -> None:
    found = SPEC["properties"]["epochs"]["properties"]["applyTimeoutSeconds"]
    assert found["exclusiveMinimum"] == 0
    assert "minimum" not in found


def test_a_pod_template_may_hold_what_kubernetes_knows() -> None:
    assert "additionalProperties" not in SPEC["properties"]["driver"]["properties"]["template"]


def test_a_key_without_a_comment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="replicas has no comment"):
        read(written(tmp_path, "replicas: 1\n"))


def test_a_hint_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="@shcema"):
        read(written(tmp_path, "# nodes\n# @shcema {}\nreplicas: 1\n"))


@pytest.mark.parametrize("chart", helm.CHARTS)
def test_a_misspelt_value_is_refused(charts: Charts, chart: str) -> None:
    assert "additional properties 'replcas' not allowed" in charts.refusal(chart, {"replcas": 3})


def test_a_misspelt_value_of_an_included_chart_is_refused(charts: Charts) -> None:
    assert "'replcas' not allowed" in charts.refusal("sluicegate", {"kafka": {"replcas": 3}})


def test_a_misspelt_field_of_a_job_is_refused(charts: Charts) -> None:
    said = charts.refusal("job", {"spec": {"epochs": {"intervall": "5 seconds"}}})
    assert "'intervall' not allowed" in said


def test_a_value_that_the_api_server_would_refuse_is_refused_by_helm(charts: Charts) -> None:
    assert "upgradeMode" in charts.refusal("job", {"spec": {"upgradeMode": "blue-green"}})


def test_every_chart_lints_with_each_of_its_files_of_values(charts: Charts) -> None:
    helm.lint(charts.folder)
