"""Pages about charts are correct: their values render, and the operator accepts their jobs."""

import re
from pathlib import Path

import pytest
import yaml

from infra.chart_docs import helm
from infra.workspace import CHECKOUT
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.pods.driver import validate
from tests.integration.charts.rendering import Charts, of_kind, only_of_kind

CLUSTERS = CHECKOUT / "docs" / "kubernetes" / "managed-clusters.md"
PAGE = helm.FOLDER / "README.md"


def write_block(name: str, tmp_path: Path, page: Path = CLUSTERS) -> Path:
    """Write the YAML block that begins with a comment of this name to a file; return its path."""
    (text,) = re.findall(rf"```yaml\n# {re.escape(name)}\n(.*?)```", page.read_text(), re.DOTALL)
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_platform_of_a_managed_cluster_renders(charts: Charts, tmp_path: Path) -> None:
    documents = charts.render("sluicegate", file=write_block("platform.yaml", tmp_path))
    assert of_kind(documents, "StatefulSet") == []
    account = only_of_kind(documents, "ServiceAccount", "sluicegate-driver")
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]


def test_the_backups_of_the_page_render_with_the_names_of_its_commands(
    charts: Charts, tmp_path: Path
) -> None:
    page = CHECKOUT / "docs" / "operations" / "backups.md"
    documents = charts.render("sluicegate", file=write_block("backups.yaml", tmp_path, page))
    names = {document["metadata"]["name"] for document in of_kind(documents, "CronJob")}
    assert names == set(re.findall(r"--from=cronjob/(\S+)", page.read_text()))


def test_the_operator_accepts_the_job_of_a_managed_cluster(charts: Charts, tmp_path: Path) -> None:
    resource = only_of_kind(
        charts.render("job", file=write_block("job.yaml", tmp_path)), "StreamingJob"
    )
    spec = parse(StreamingJobSpec, resource["spec"], "spec")
    assert validate(resource["metadata"]["name"], spec) is None
    assert spec.spark_conf["spark.decommission.enabled"] == "true"


@pytest.mark.parametrize("page", [PAGE, CLUSTERS], ids=lambda path: path.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    paths = [page.parent / link for link in links]
    paths += [CHECKOUT / path for path in re.findall(r"charts/[\w/.-]+\.yaml", page.read_text())]
    assert [str(path) for path in paths if not path.exists()] == []


def test_the_page_names_every_chart() -> None:
    assert all(f"]({name}/README.md)" in PAGE.read_text() for name in helm.CHARTS)


@pytest.mark.parametrize("name", ["managed-clusters.md", "README.md"])
def test_each_block_of_values_is_valid_yaml(name: str) -> None:
    page = CLUSTERS if name == "managed-clusters.md" else PAGE
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        assert yaml.safe_load(text)
