"""What pages say of charts is so: their values render, and the operator takes their jobs."""

import re
from pathlib import Path

import pytest
import yaml

from infra.chart_docs import helm
from infra.workspace import CHECKOUT
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.pods.driver import validate
from tests.integration.charts.rendering import Charts, of_kind, the

CLUSTERS = CHECKOUT / "docs" / "kubernetes" / "managed-clusters.md"
PAGE = helm.FOLDER / "README.md"


def block(named: str, tmp_path: Path) -> Path:
    """Return a file with the block of YAML that begins with a comment of its name."""
    (text,) = re.findall(
        rf"```yaml\n# {re.escape(named)}\n(.*?)```", CLUSTERS.read_text(), re.DOTALL
    )
    path = tmp_path / named
    path.write_text(text)
    return path


def test_the_platform_of_a_managed_cluster_renders(charts: Charts, tmp_path: Path) -> None:
    found = charts.render("sluicegate", file=block("platform.yaml", tmp_path))
    assert of_kind(found, "StatefulSet") == []
    account = the(found, "ServiceAccount", "sluicegate-driver")
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]


def test_the_operator_takes_the_job_of_a_managed_cluster(charts: Charts, tmp_path: Path) -> None:
    found = the(charts.render("job", file=block("job.yaml", tmp_path)), "StreamingJob")
    made = parse(StreamingJobSpec, found["spec"], "spec")
    assert validate(found["metadata"]["name"], made) is None
    assert made.spark_conf["spark.decommission.enabled"] == "true"


@pytest.mark.parametrize("page", [PAGE, CLUSTERS], ids=lambda path: path.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    named = [page.parent / link for link in links]
    named += [CHECKOUT / path for path in re.findall(r"charts/[\w/.-]+\.yaml", page.read_text())]
    assert [str(path) for path in named if not path.exists()] == []


def test_the_page_names_every_chart() -> None:
    assert all(f"]({name}/README.md)" in PAGE.read_text() for name in helm.CHARTS)


@pytest.mark.parametrize("name", ["managed-clusters.md", "README.md"])
def test_a_block_of_values_is_yaml(name: str) -> None:
    page = CLUSTERS if name == "managed-clusters.md" else PAGE
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        assert yaml.safe_load(text)
