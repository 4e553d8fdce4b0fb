"""OpenAPI v3 structural schemas, generated from the typed resources.

Source of the rules: the Kubernetes documentation, "Extend the Kubernetes API with
CustomResourceDefinitions" (structural schemas, defaulting, x-kubernetes-validations).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, get_args, get_origin

from sluicegate.settings.formats import notation_of, without_none
from sluicegate.settings.schema import default_of, is_required
from sluicegate_operator.api.codec import (
    API,
    description_of,
    has_default_in_schema,
    rules_of,
    rules_of_field,
)
from sluicegate_operator.api.fields import Rule

Schema = dict[str, Any]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}

_KEYWORDS = {"at_least": "minimum", "at_most": "maximum", "pattern": "pattern"}

_MAX_LENGTH, _MAX_PROPERTIES, _MAX_VALUE_LENGTH = 4096, 256, 16384
"""Maximum length of a string in a spec, and of a map and its values. The API server's cost estimate of a
CEL rule needs a bound."""


def schema_of(kind: type[object], *, defaults: bool = True) -> Schema:
    """Return the schema of a dataclass, with its validation rules.

    Args:
        kind: a dataclass of this package, or a settings dataclass of the library.
        defaults: whether the API server fills in defaults. Not in a status, which only the operator
            writes.
    """
    properties, required = {}, []
    for name, (field, hint) in API.fields(kind).items():
        properties[name] = _property(kind, field, hint, defaults=defaults)
        if is_required(field):
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema | validations(rules_of(kind))


def validations(rules: Iterable[Rule]) -> Schema:
    """Return the part of a schema with validation rules, which is empty without any."""
    found = [{"rule": rule.cel, "message": rule.message} for rule in rules]
    return {"x-kubernetes-validations": found} if found else {}


def _property(
    kind: type[object],
    field: dataclasses.Field[Any],
    hint: Any,  # noqa: ANN401 - a type hint
    *,
    defaults: bool,
) -> Schema:
    limits, enum = dict(field.metadata["limits"]), list(API.values(kind, field))
    schema: Schema = {
        "description": description_of(kind, field),
        **_type(without_none(hint), defaults=defaults),
    }
    if enum:
        schema["enum"] = enum
    if "above" in limits:
        schema |= {"minimum": limits.pop("above"), "exclusiveMinimum": True}
    schema |= {_KEYWORDS[name]: limit for name, limit in limits.items()}
    if schema["type"] == "string" and defaults and not enum:
        schema |= {"minLength": 1, "maxLength": _MAX_LENGTH}
    if defaults and not is_required(field):
        value = default_of(field)
        # An optional object has the default {}: the API server then fills in its fields' defaults.
        if has_default_in_schema(value):
            schema["default"] = API.render_value(kind, field, hint, value)
    return schema | validations(rules_of_field(kind, field.name))


def _type(hint: Any, *, defaults: bool) -> Schema:  # noqa: ANN401 - a type hint
    if notation_of(hint) is not None:
        return {"type": "string", "format": "date-time"}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _type(get_args(hint)[0], defaults=defaults)}
    if get_origin(hint) is not None:
        if get_args(hint)[1] is str:
            values = {"type": "string", "maxLength": _MAX_VALUE_LENGTH}
            schema = {"type": "object", "additionalProperties": values}
            return {**schema, "maxProperties": _MAX_PROPERTIES}
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return schema_of(hint, defaults=defaults)
    kind = _PLAIN[hint]
    return {"type": kind, "format": "int64"} if kind == "integer" else {"type": kind}
