"""What pages say of charts is so: their values render, and the operator takes their jobs."""

import re
from pathlib import Path

import pytest
import yaml

from infra.charts import helm
from infra.work import CHECKOUT
from sluicegate_operator.pods.checks import refused
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.parsing import parse
from tests.charts.rendered import Charts, of_kind, the

CLUSTERS = CHECKOUT / "infra" / "clusters.md"
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
    assert refused(found["metadata"]["name"], made) is None
    assert made.spark_conf["spark.decommission.enabled"] == "true"


@pytest.mark.parametrize("page", [PAGE, CLUSTERS], ids=lambda path: path.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    named = [page.parent / link for link in links]
    named += [CHECKOUT / path for path in re.findall(r"charts/[\w/.-]+\.yaml", page.read_text())]
    assert [str(path) for path in named if not path.exists()] == []


def test_the_page_names_every_chart() -> None:
    assert all(f"]({name}/README.md)" in PAGE.read_text() for name in helm.CHARTS)


@pytest.mark.parametrize("name", ["clusters.md", "README.md"])
def test_a_block_of_values_is_yaml(name: str) -> None:
    page = CLUSTERS if name == "clusters.md" else PAGE
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        assert yaml.safe_load(text)
