"""OpenAPI v3 structural schemas, generated from the typed resources.

Source of the rules: the Kubernetes documentation, "Extend the Kubernetes API with
CustomResourceDefinitions" (structural schemas, defaulting, x-kubernetes-validations).
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

from sluicegate_operator.api.codec import (
    default_of,
    is_instant,
    is_required,
    render_value,
    without_none,
)
from sluicegate_operator.api.library_settings import (
    description_of,
    enum_values,
    field_name,
    rules_of,
)

Schema = dict[str, Any]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}

_MAX_LENGTH = 4096
"""Maximum length of a string in a spec. The API server's cost estimate of a CEL rule needs a bound."""


def schema_of(kind: type[object], *, defaults: bool = True) -> Schema:
    """Return the schema of a dataclass, with its validation rules.

    Args:
        kind: a dataclass of this package, or a settings dataclass of the library.
        defaults: whether the API server fills in defaults. Not in a status, which only the operator
            writes.
    """
    assert dataclasses.is_dataclass(kind)
    hints = get_type_hints(kind, include_extras=True)
    properties, required = {}, []
    for declared in dataclasses.fields(kind):
        name = field_name(kind, declared.name)
        properties[name] = _property(kind, declared, hints[declared.name], defaults=defaults)
        if is_required(declared):
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    rules = [{"rule": rule.cel, "message": rule.message} for rule in rules_of(kind)]
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _property(
    kind: type[object],
    declared: dataclasses.Field[Any],
    hint: Any,  # noqa: ANN401 - a type hint
    *,
    defaults: bool,
) -> Schema:
    bounds, enum = declared.metadata, list(enum_values(kind, declared))
    schema: Schema = {
        "description": description_of(kind, declared),
        **_type(without_none(hint), defaults=defaults),
    }
    if enum:
        schema["enum"] = enum
    if "above" in bounds:
        schema |= {"minimum": bounds["above"], "exclusiveMinimum": True}
    if "at_least" in bounds:
        schema["minimum"] = bounds["at_least"]
    if "at_most" in bounds:
        schema["maximum"] = bounds["at_most"]
    if "pattern" in bounds:
        schema["pattern"] = bounds["pattern"]
    if schema["type"] == "string" and defaults and not enum:
        schema |= {"minLength": 1, "maxLength": _MAX_LENGTH}
    if defaults and not is_required(declared):
        schema |= _default(kind, declared, hint)
    return schema


def _default(kind: type[object], declared: dataclasses.Field[Any], hint: Any) -> Schema:  # noqa: ANN401 - a type hint
    """Return the default for the API server to fill in.

    An optional object has the default {}: the API server then fills in the defaults of its fields.
    """
    value = default_of(declared)
    if not isinstance(value, bool) and value in ("", (), {}, None):
        return {}
    return {"default": render_value(kind, declared, hint, value)}


def _type(hint: Any, *, defaults: bool) -> Schema:  # noqa: ANN401 - a type hint
    if is_instant(hint):
        return {"type": "string", "format": "date-time"}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _type(get_args(hint)[0], defaults=defaults)}
    if get_origin(hint) is not None:
        if get_args(hint)[1] is str:
            return {"type": "object", "additionalProperties": {"type": "string"}}
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return schema_of(hint, defaults=defaults)
    kind = _PLAIN[hint]
    return {"type": kind, "format": "int64"} if kind == "integer" else {"type": kind}
