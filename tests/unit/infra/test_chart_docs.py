"""Schemas and READMEs of the charts are written from their values and the CRD."""

import json
from pathlib import Path

import pytest
import yaml

from infra import versions
from infra.chart_docs import helm, schema
from infra.chart_docs.__main__ import stale
from infra.chart_docs.values import ValuesError, read
from infra.images.catalog import VERSION

SPEC = schema.of_crd("streamingjobs")


def write_values(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "values.yaml"
    path.write_text(f"# head\n\n{text}")
    return path


def test_schemas_and_readmes_are_up_to_date() -> None:
    assert stale() == []


@pytest.mark.parametrize(
    ("chart", "version"),
    [
        ("kafka", versions.KAFKA),
        ("object-store", versions.VERSITYGW),
        ("collector", versions.OTELCOL),
        ("operator", VERSION),
    ],
)
def test_a_chart_names_the_version_of_its_server(chart: str, version: str) -> None:
    described = yaml.safe_load((helm.FOLDER / chart / "Chart.yaml").read_text())
    assert (described["version"], described["appVersion"]) == (VERSION, version)


def test_the_schema_of_a_job_has_every_field_of_the_crd() -> None:
    crd = yaml.safe_load((schema.CRDS / "streamingjobs.yaml").read_text())
    version = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = set(version["properties"]["spec"]["properties"])
    schema_of_job = json.loads((helm.FOLDER / "job" / "values.schema.json").read_text())
    top_level = {"image", "imagePullPolicy", "imagePullSecrets"}
    assert set(schema_of_job["properties"]["spec"]["properties"]) == fields - top_level


def test_an_exclusive_bound_uses_the_json_schema_keyword() -> None:
    timeout = SPEC["properties"]["epochs"]["properties"]["applyTimeoutSeconds"]
    assert timeout["exclusiveMinimum"] == 0
    assert "minimum" not in timeout


def test_a_pod_template_may_have_any_field_of_kubernetes() -> None:
    assert "additionalProperties" not in SPEC["properties"]["driver"]["properties"]["template"]


def test_a_key_without_a_comment_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="replicas has no comment"):
        read(write_values(tmp_path, "replicas: 1\n"))


def test_an_unknown_hint_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="@shcema"):
        read(write_values(tmp_path, "# nodes\n# @shcema {}\nreplicas: 1\n"))
