"""Releases: the version everywhere it stands, and a changelog section with a date."""

from __future__ import annotations

import datetime as dt

import pytest
import yaml

from infra.chart_docs import helm
from infra.images.catalog import VERSION
from infra.release import DISTRIBUTIONS, ReleaseError, with_changelog_section, with_version
from infra.workspace import CHECKOUT

DAY = dt.date(2026, 11, 22)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("jobs/pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"'),
        ("operators/pyproject.toml", '    "sluicegate==0.1.0",', '    "sluicegate==0.2.0",'),
        (
            "charts/job/Chart.yaml",
            "version: 0.1.0\nappVersion: 0.1.0",
            "version: 0.2.0\nappVersion: 0.2.0",
        ),
        ("infra/images/catalog.py", 'VERSION: Final = "0.1.0"', 'VERSION: Final = "0.2.0"'),
        ("docs/a.md", "image: sluicegate/jobs:0.1.0", "image: sluicegate/jobs:0.2.0"),
    ],
)
def test_the_version_is_replaced(name: str, old: str, new: str) -> None:
    assert with_version(name, old, "0.1.0", "0.2.0") == new


@pytest.mark.parametrize("chart", helm.CHARTS)
def test_a_chart_asks_for_the_new_version_of_its_own_dependencies(chart: str) -> None:
    text = (helm.FOLDER / chart / "Chart.yaml").read_text(encoding="utf-8")
    changed = yaml.safe_load(with_version(f"charts/{chart}/Chart.yaml", text, VERSION, "9.8.7"))
    assert changed["version"] == "9.8.7"
    for dependency in changed.get("dependencies", ()):
        if dependency["repository"].startswith("file://"):
            assert dependency["version"] == "9.8.7", dependency["name"]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_each_wheel_has_the_license(distribution: str) -> None:
    text = (CHECKOUT / "LICENSE").read_text(encoding="utf-8")
    assert (CHECKOUT / distribution / "LICENSE").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jobs/pyproject.toml", '    "cronsim>=0.1.0",'),
        ("charts/job/Chart.yaml", "kubeVersion: 0.1.0"),
        ("docs/a.md", "image: registry/other:0.1.0 and 0.1.0"),
    ],
)
def test_versions_of_others_stay(name: str, text: str) -> None:
    assert with_version(name, text, "0.1.0", "0.2.0") == text


def test_the_changelog_gets_a_dated_section() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\n### Added\n- A.\n"
    dated = with_changelog_section(text, "0.2.0", DAY)
    assert dated == (
        "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-22\n\n### Added\n- A.\n"
    )


@pytest.mark.parametrize(
    "text", ["# Changelog\n", "## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n- A.\n"]
)
def test_a_release_without_changes_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match="nothing under"):
        with_changelog_section(text, "0.2.0", DAY)
