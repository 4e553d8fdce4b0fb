"""Pages about Kubernetes: the three kinds, metrics, the values of the charts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from infra.chart_docs import helm
from infra.chart_docs.values import described, read
from infra.reference_docs.markdown import bullets, code, page, paragraph, sentence, table
from sluicegate.metrics import DriverMetrics
from sluicegate_operator.api.crds import KINDS
from sluicegate_operator.controllers.metrics import Metrics

_FIELDS: Final = ("field", "type", "default", "meaning")

_LIMITS: Final = (("minimum", "at least"), ("maximum", "at most"))


def kind_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of a page per kind."""
    for kind in KINDS:
        definition = kind.definition()["spec"]
        name = definition["names"]["singular"]
        yield f"{name}.md", _kind_page(definition, name)


def _kind_page(definition: Mapping[str, Any], name: str) -> str:
    names = definition["names"]
    (version,) = definition["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    return page(
        names["kind"],
        "`sluicegate_operator.api`",
        paragraph(
            f"`{definition['group']}/{version['name']}`, kind `{names['kind']}`, plural "
            f"`{names['plural']}`, short `{'`, `'.join(names['shortNames'])}`. "
            f"{sentence(schema['description'])} What it is for: "
            f"[{names['kind']}](../kubernetes/{name}.md)."
        ),
        "## spec",
        table(_FIELDS, _rows(spec, "")),
        "## Rules",
        "The API server rejects an object that breaks one of these.",
        bullets(_rules(schema)),
        "## status",
        "The operator writes it. Do not edit it.",
        table(_FIELDS, _rows(status, "")),
        "## Columns of kubectl get",
        table(
            ("column", "field", "shown"),
            (
                (
                    column["name"],
                    code(column["jsonPath"]),
                    "with `-o wide`" if column.get("priority") else "always",
                )
                for column in version["additionalPrinterColumns"]
            ),
        ),
    )


def _rows(schema: Mapping[str, Any], above: str) -> Iterator[Sequence[str]]:
    """Yield a row per field, objects before the fields in them."""
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        path = f"{above}{name}"
        items = field.get("items", {})
        nested = items if "properties" in items else field
        default = "required" if name in required else _default(field)
        yield code(path), _type(field), default, _meaning(field)
        if "properties" in nested:
            yield from _rows(nested, f"{path}[]." if nested is items else f"{path}.")


def _type(field: Mapping[str, Any]) -> str:
    if field["type"] == "array":
        return f"list of {_type(field['items'])}s"
    if field.get("format") == "date-time":
        return "time"
    return "map" if "additionalProperties" in field else str(field["type"])


def _default(field: Mapping[str, Any]) -> str:
    if "default" not in field or field["type"] in ("object", "array"):
        return ""
    return code(field["default"])


def _meaning(field: Mapping[str, Any]) -> str:
    text = sentence(field.get("description", ""))
    if "enum" in field:
        text += f" One of {', '.join(map(code, field['enum']))}."
    limits = [f"{words} {field[name]:g}" for name, words in _LIMITS if name in field]
    if field.get("exclusiveMinimum"):
        limits[0] = f"above {field['minimum']:g}"
    if limits:
        text += f" {sentence(', '.join(limits))}"
    return text


def _rules(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the messages of all validation rules in a schema."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule["message"]
    for field in schema.get("properties", {}).values():
        yield from _rules(field)


def metrics_page() -> str:
    """Return the page of the metrics of the operator and of drivers."""
    head = ("metric", "type", "labels", "meaning")
    return page(
        "Metrics",
        "`sluicegate_operator.controllers.metrics` and `sluicegate.metrics`",
        paragraph("The unit of a metric is at the end of its name, before `_total` of a counter."),
        "## The operator",
        paragraph(
            "The operator serves them at `/metrics`, port 8080. Only the leader shows jobs. "
            "[Health and metrics](../kubernetes/metrics.md) explains how to read them."
        ),
        table(head, sorted(metric_rows(Metrics()))),
        "## A driver",
        paragraph(
            "A driver serves them at `/metrics`, at the port that `metrics-port` sets, with the "
            "`process_*` metrics of its Python process. [Metrics of a job](../operations/metrics.md) "
            "explains how to read them."
        ),
        table(head, sorted(metric_rows(DriverMetrics()))),
    )


def metric_rows(metrics: Metrics | DriverMetrics) -> Iterator[tuple[str, ...]]:
    """Yield the name, type, labels and meaning of each metric, which need no sample."""
    for collector in vars(metrics).values():
        if collector is metrics.registry or not hasattr(collector, "collect"):
            continue
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            # prometheus_client has no public name for the labels of a metric without samples
            labels = vars(family).get("_labelnames") or vars(collector).get("_labelnames", ())
            yield code(name), family.type, ", ".join(labels), sentence(family.documentation)


def charts_page() -> str:
    """Return the page of the values of all charts."""
    return page(
        "Chart values",
        "the comments of each chart's `values.yaml`",
        paragraph(
            "`charts/README.md` describes how to install the charts. Schemas are strict: a misspelt value "
            "is an error."
        ),
        *(block for name in helm.CHARTS for block in _chart(name)),
    )


def _chart(name: str) -> Iterator[str]:
    folder = helm.FOLDER / name
    chart = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
    yield f"## {name}"
    yield paragraph(sentence(chart["description"]))
    rows = (
        (code(path), "" if v.children else code(json.dumps(v.default)), sentence(v.text))
        for path, v in described(read(folder / "values.yaml").children)
    )
    yield table(("value", "default", "meaning"), rows)
