"""Generates values.schema.json from a tree of values. It is strict: a misspelt key is refused.

Parts that mirror a CRD come from operators/crds.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from infra.chart_docs.values import Value, Values
from infra.workspace import CHECKOUT

CRDS: Final = CHECKOUT / "operators" / "crds"

_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
# Of OpenAPI what JSON schema says the same way; defaults are the API server's matter.
_KEPT: Final = (
    "description",
    "type",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "required",
)

Schema = dict[str, Any]


def text_of(values: Values, chart: Schema) -> str:
    """Return the file's text; `chart` is what its Chart.yaml says."""
    made = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"values of {chart['name']}",
        **_strict(values.children),
    }
    for included in chart.get("dependencies", ()):
        # helm gives each included chart a place in the values, a library too
        made["properties"].setdefault(included["name"], {"type": "object"})
    return json.dumps(made, indent=1) + "\n"


def of_crd(plural: str, without: Sequence[str] = (), folder: Path = CRDS) -> Schema:
    """Return the schema of a CRD's spec, without some fields."""
    definition = yaml.safe_load((folder / f"{plural}.yaml").read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    made = _of_openapi(spec)
    for name in without:
        del made["properties"][name]
    made["required"] = [name for name in made.get("required", ()) if name not in without]
    return made


def _of_openapi(found: Schema) -> Schema:
    made: Schema = {name: found[name] for name in _KEPT if name in found}
    if found.get("exclusiveMinimum"):
        made["exclusiveMinimum"] = made.pop("minimum")
    if "items" in found:
        made["items"] = _of_openapi(found["items"])
    if "properties" in found:
        made["properties"] = {n: _of_openapi(below) for n, below in found["properties"].items()}
        made["additionalProperties"] = False
    elif isinstance(found.get("additionalProperties"), dict):
        made["additionalProperties"] = _of_openapi(found["additionalProperties"])
    return made


def _strict(children: Sequence[Value], *, free: bool = False) -> Schema:
    return {
        "type": "object",
        "additionalProperties": free,
        "properties": {child.name: _of(child, free=free) for child in children},
    }


def _of(value: Value, *, free: bool = False) -> Schema:
    """Return the schema of a value; what is below one that is free is free too."""
    said = {"description": value.text} if value.text else {}
    if value.crd:
        return {**of_crd(value.crd[0], value.crd[1:]), **said}
    if not isinstance(value.default, dict):
        return {"type": _TYPES[type(value.default)], **said, **value.hints}
    if value.children:
        return {**_strict(value.children, free=free or value.free), **said}
    return {"type": "object", **said, **value.hints}
