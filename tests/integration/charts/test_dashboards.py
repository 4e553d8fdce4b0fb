"""The dashboards for Grafana query what our programs export, and the chart ships them."""

from __future__ import annotations

import itertools
import json
import re
from typing import Final

import pytest

from infra.chart_docs import helm
from tests.integration.charts.promql import unknown
from tests.integration.charts.rendering import Charts, Document, of_kind, only_of_kind

DASHBOARDS: Final = {
    path.name: json.loads(path.read_text())
    for path in sorted((helm.FOLDER / "operator" / "dashboards").glob("*.json"))
}
UNITS: Final = {"short", "none", "s", "bytes", "Bps", "ops", "rowsps"}
"""Those of Grafana's units that the dashboards need: an unknown one is shown without an error."""

WIDTH: Final = 24

every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)


def expressions(dashboard: Document) -> list[str]:
    """Return the queries of panels and variables, with Grafana's interval as a duration."""
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            (series, label) = re.findall(
                r"^label_values\((.+), (\w+)\)$", variable["query"]["query"]
            )[0]
            queries.append(f"count by ({label}) ({series})")
    return [query.replace("$__rate_interval", "5m") for query in queries]


def test_there_is_a_dashboard_of_the_fleet_of_a_job_and_of_the_operator() -> None:
    names = {f"sluicegate-{name}.json" for name in ("fleet", "job", "operator")}
    assert set(DASHBOARDS) == names
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(names)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("rate(sluicegate_rows_total[5m])", ["sluicegate_rows_total[]"]),
        ("sum by (queue) (sluicegate_queue_depth)", ["sluicegate_queue_depth['queue']"]),
        ("sluicegate_leader{replica='0'} == 1", ["sluicegate_leader['replica']"]),
        ("sum by (kind, le) (sluicegate_reconcile_seconds_bucket)", []),
    ],
)
def test_a_metric_or_label_that_nothing_exports_is_found(expression: str, found: list[str]) -> None:
    assert unknown(expression) == found


@every_dashboard
def test_a_dashboard_queries_metrics_and_labels_that_exist(dashboard: Document) -> None:
    assert [found for text in expressions(dashboard) for found in unknown(text)] == []


@every_dashboard
def test_each_panel_has_an_id_of_its_own_a_title_and_a_unit(dashboard: Document) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert {panel["fieldConfig"]["defaults"]["unit"] for panel in panels} <= UNITS


@every_dashboard
def test_panels_do_not_overlap_and_fit(dashboard: Document) -> None:
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for place in [panel["gridPos"]]
        for x, y in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < WIDTH


def test_the_dashboards_are_rendered_only_if_enabled(charts: Charts) -> None:
    def config_maps(*, enabled: bool) -> list[Document]:
        metrics = {"dashboard": {"enabled": enabled}}
        return of_kind(
            charts.render("operator", {"watch": {"all": True}, "metrics": metrics}), "ConfigMap"
        )

    assert config_maps(enabled=False) == []
    config_map = only_of_kind(config_maps(enabled=True), "ConfigMap")
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    shipped = {name: json.loads(text) for name, text in config_map["data"].items()}
    assert shipped == DASHBOARDS
