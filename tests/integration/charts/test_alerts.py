"""The alerts query what our programs export, and each has a section with what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from infra.workspace import CHECKOUT
from sluicegate_operator.api.streaming_job_status import PHASES
from tests.integration.charts.promql import unknown
from tests.integration.charts.rendering import Charts, Document, of_kind, only_of_kind

PAGE: Final = CHECKOUT / "docs" / "kubernetes" / "alerts.md"
ENABLED: Final = {"alerts": {"enabled": True}}
VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "operator": {"watch": {"all": True}, "metrics": ENABLED},
    "job": {"spec": {"epochs": {"metricsPort": 9464}}, "metrics": ENABLED},
}
"""The values that switch on the alerts of each chart."""

every_chart = pytest.mark.parametrize("chart", VALUES)


def alerts_of(charts: Charts, chart: str, **thresholds: object) -> dict[str, Document]:
    """Return the alerts of a chart by their names."""
    metrics = {"alerts": {"enabled": True, **thresholds}}
    documents = charts.render(
        chart, {**VALUES[chart], "metrics": metrics}, release="clicks", namespace="shop"
    )
    rules = [
        rule
        for group in only_of_kind(documents, "PrometheusRule")["spec"]["groups"]
        for rule in group["rules"]
    ]
    alerts = {rule["alert"]: rule for rule in rules}
    assert len(alerts) == len(rules)
    return alerts


def sections() -> dict[str, str]:
    """Return the text of each section of the page that is about an alert."""
    found = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return dict(found)


@every_chart
def test_alerts_are_rendered_only_if_enabled(charts: Charts, chart: str) -> None:
    without = {**VALUES[chart], "metrics": {}}
    assert of_kind(charts.render(chart, without), "PrometheusRule") == []


@every_chart
def test_an_alert_queries_metrics_and_labels_that_exist(charts: Charts, chart: str) -> None:
    for name, rule in alerts_of(charts, chart).items():
        assert unknown(rule["expr"]) == [], name


def test_alerts_name_only_phases_that_exist(charts: Charts) -> None:
    text = " ".join(rule["expr"] for rule in alerts_of(charts, "operator").values())
    named = {
        phase for found in re.findall(r'phase=~?"([^"]+)"', text) for phase in found.split("|")
    }
    assert named <= set(PHASES)
    assert "Failed" in named


PAGES_OF_JOBS: Final = {
    "operator": "/find?job={{ $labels.namespace }}/{{ $labels.job }}",
    "job": "/find?job=shop/clicks",
}


@every_chart
@pytest.mark.parametrize("end", ["", "/"])
def test_an_alert_about_a_job_links_to_its_page_in_the_console(
    charts: Charts, chart: str, end: str
) -> None:
    url = "https://console.example.com"
    for name, rule in alerts_of(charts, chart, consoleURL=url + end).items():
        about_a_job = chart == "job" or "by (namespace, job)" in rule["expr"]
        page = url + (PAGES_OF_JOBS[chart] if about_a_job else end)
        assert rule["annotations"]["console_url"] == page, name


@every_chart
def test_an_alert_has_no_link_without_a_console(charts: Charts, chart: str) -> None:
    for rule in alerts_of(charts, chart).values():
        assert "console_url" not in rule["annotations"]


def test_alerts_of_the_operator_link_to_the_console_of_its_events(charts: Charts) -> None:
    url = "https://console.example.com"
    values = {**VALUES["operator"], "consoleURL": url}
    rules = only_of_kind(charts.render("operator", values), "PrometheusRule")
    (group, *_) = rules["spec"]["groups"]
    links = {rule["annotations"]["console_url"] for rule in group["rules"]}
    assert links == {url, url + PAGES_OF_JOBS["operator"]}


@every_chart
def test_an_alert_has_a_severity_a_summary_and_the_address_of_its_section(
    charts: Charts, chart: str
) -> None:
    for name, rule in alerts_of(charts, chart, runbookURL="https://docs.example.com/a").items():
        assert rule["labels"]["severity"] in {"critical", "warning"}, name
        annotations = rule["annotations"]
        assert annotations["runbook_url"] == f"https://docs.example.com/a#{name.lower()}"
        assert annotations["summary"].endswith("."), name
        assert re.fullmatch(r"\d+m", rule.get("for", "0m")), name


def test_each_alert_has_a_section_and_each_section_an_alert(charts: Charts) -> None:
    alerts = [name for chart in VALUES for name in alerts_of(charts, chart)]
    assert sorted(alerts) == sorted(sections())


def test_the_page_says_of_each_alert_how_it_is_tested() -> None:
    rows = re.findall(r"^\| (Sluicegate\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(sections())


@pytest.mark.parametrize("name", sections())
def test_a_section_says_what_it_means_what_to_look_at_and_what_to_do(name: str) -> None:
    parts = re.findall(r"^- \*\*([\w ]+)\*\*:\s", sections()[name], re.MULTILINE)
    assert parts == ["Means", "Look at", "Do"]


def test_alerts_of_a_job_are_about_that_job_only(charts: Charts) -> None:
    for name, rule in alerts_of(charts, "job").items():
        selectors = re.findall(r"\{[^}]*\}", rule["expr"])
        job = (
            'pod=~"clicks-[0-9]+-driver"' if name == "SluicegateMetricsMissing" else 'job="clicks"'
        )
        assert selectors, name
        assert all(f'namespace="shop", {job}' in selector for selector in selectors), name


def test_alerts_of_a_job_without_metrics_are_rejected(charts: Charts) -> None:
    assert "Set spec.epochs.metricsPort" in charts.refusal("job", {"metrics": ENABLED})


@pytest.mark.parametrize(
    ("chart", "threshold", "alert"),
    [
        ("operator", "restartsPerHour", "SluicegateJobRestarts"),
        ("operator", "stalledSeconds", "SluicegateJobStalled"),
        ("operator", "notRunningMinutes", "SluicegateJobNotRunning"),
        ("job", "inDoubtSeconds", "SluicegateEpochInDoubt"),
        ("job", "stalledSeconds", "SluicegateNoProgress"),
        ("job", "lagRecords", "SluicegateLagGrows"),
        ("job", "deadLetters", "SluicegateDeadLetters"),
        ("job", "sinkSeconds", "SluicegateSinkSlow"),
        ("job", "stateRows", "SluicegateStateLarge"),
    ],
)
def test_a_threshold_is_that_of_its_alert(
    charts: Charts, chart: str, threshold: str, alert: str
) -> None:
    rule = alerts_of(charts, chart, **{threshold: 123456789})[alert]
    assert "123456789" in f"{rule['expr']} {rule.get('for', '')}"


def test_the_commands_of_the_page_switch_on_what_it_says(charts: Charts) -> None:
    lines = re.findall(r"^helm upgrade .*$", PAGE.read_text(), re.MULTILINE)
    platform, job = (charts.names_after(line) for line in lines)
    operator = "sluicegate-operator"
    assert f"ServiceMonitor {operator}" in platform
    assert f"PrometheusRule {operator}" in platform
    assert f"ConfigMap {operator}-dashboards" in platform
    assert {"PodMonitor ip-count", "PrometheusRule ip-count"} <= job
