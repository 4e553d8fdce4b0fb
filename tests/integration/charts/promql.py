"""Which metrics and labels an expression of PromQL uses, and which ones a program exports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import promql_parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from infra.reference_docs.kubernetes import metric_rows
from infra.workspace import CHECKOUT
from sluicegate.metrics import DriverMetrics
from sluicegate_operator.controllers.metrics import Metrics

SERVERS_PAGE: Final = CHECKOUT / "docs" / "kubernetes" / "metrics.md"
"""The page with the queries about the bundled servers."""

TARGET_LABELS: Final = frozenset({"namespace", "pod"})
"""What a ServiceMonitor and a PodMonitor add to each series."""

PROMETHEUS_METRICS: Final = {"up": frozenset[str]()}
"""What Prometheus itself writes for each target."""

_HISTOGRAM_SAMPLES: Final = {"bucket": {"le"}, "sum": set[str](), "count": set[str]()}


def exported() -> dict[str, frozenset[str]]:
    """Return the series of the operator and of a driver, each with its labels."""
    series = dict(PROMETHEUS_METRICS)
    for metrics in (Metrics(), DriverMetrics()):
        series |= _process_series(metrics.registry)
        for cell, kind, labels, _ in metric_rows(metrics):
            name, own = cell.strip("`"), frozenset(labels.split(", ")) - {""}
            if kind == "histogram":
                more = _HISTOGRAM_SAMPLES.items()
                series |= {f"{name}_{suffix}": own | added for suffix, added in more}
            else:
                series[name] = own
    return {name: labels | TARGET_LABELS for name, labels in series.items()}


def server_queries(prefix: str) -> list[str]:
    """Return the queries of the page about a bundled server, whose metrics begin with a prefix."""
    section = SERVERS_PAGE.read_text().partition("## Metrics of the bundled servers")[2]
    table = section.partition("| question | query |")[2].partition("\n\n")[0]
    return [code for code in re.findall(r"`([^`]+)`", table) if prefix in code]


def scraped(text: str) -> dict[str, frozenset[str]]:
    """Return the series of what a server answered to a scrape, each with its labels."""
    series: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series[sample.name] = series.get(sample.name, frozenset()) | sample.labels.keys()
    return series


def used(expression: str) -> dict[str, set[str]]:
    """Return the metrics of an expression, each with the labels of its matchers and of all groupings.

    Raises:
        ValueError: this is not PromQL.
    """
    selectors: list[promql_parser.VectorSelector] = []
    groupings: set[str] = set()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            groupings.update(node.modifier.labels)
        elif (
            isinstance(node, promql_parser.BinaryExpr) and node.modifier and node.modifier.matching
        ):
            groupings.update(node.modifier.matching.labels)

    promql_parser.walk(promql_parser.parse(expression), visit)
    found: dict[str, set[str]] = {}
    for selector in selectors:
        labels = {matcher.name for matcher in selector.matchers.matchers}
        found.setdefault(selector.name or "", set(groupings)).update(labels)
    return found


def unknown(expression: str, series: Mapping[str, frozenset[str]] | None = None) -> list[str]:
    """Return the metrics of an expression that are not in `series`, or not with these labels.

    Args:
        expression: a query.
        series: default: what the operator and a driver export.
    """
    series = exported() if series is None else series
    return [
        f"{name}{sorted(labels)}"
        for name, labels in used(expression).items()
        if name not in series or not labels <= series[name]
    ]


def _process_series(registry: CollectorRegistry) -> dict[str, frozenset[str]]:
    """Return the `process_*` series of a registry, which have no labels of their own."""
    names = {sample.name for family in registry.collect() for sample in family.samples}
    return {name: frozenset() for name in names if name.startswith("process_")}
