"""OpenAPI v3 structural schemas, made from the typed resources.

The source of the rules: Kubernetes' documentation, "Extend the Kubernetes API with
CustomResourceDefinitions" (structural schemas, defaulting, x-kubernetes-validations). Not here:
names and columns of a kind (`kinds`). Called by `kinds`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

from sluicegate.settings.schema import choices_of
from sluicegate_operator.resources.declaring import name_of, rules_of
from sluicegate_operator.resources.parsing import default_of, is_instant, render, without_none

Schema = dict[str, Any]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}

_LONGEST = 4096
"""Of a text in a spec: the API server's estimate of a rule's cost needs a bound."""


def schema_of(kind: type[object], *, defaults: bool = True) -> Schema:
    """Return the schema of a dataclass, with its rules.

    Args:
        kind: a dataclass of `resources`, or settings of the library.
        defaults: whether the API server fills defaults in; not in a status, which is ours.
    """
    assert dataclasses.is_dataclass(kind)
    hints = get_type_hints(kind, include_extras=True)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        name = name_of(kind, field.name)
        properties[name] = _property(field, hints[field.name], defaults=defaults)
        try:
            default_of(field)
        except LookupError:
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    rules = [{"rule": rule.cel, "message": rule.message} for rule in rules_of(kind)]
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _property(field: dataclasses.Field[Any], hint: Any, *, defaults: bool) -> Schema:  # noqa: ANN401 - a type hint
    said = field.metadata
    schema: Schema = {"description": said["help"], **_type(without_none(hint), defaults=defaults)}
    if choices_of(field):
        schema["enum"] = list(choices_of(field))
    if "above" in said:
        schema |= {"minimum": said["above"], "exclusiveMinimum": True}
    if "at_least" in said:
        schema["minimum"] = said["at_least"]
    if "at_most" in said:
        schema["maximum"] = said["at_most"]
    if "pattern" in said:
        schema["pattern"] = said["pattern"]
    if schema["type"] == "string" and defaults and not choices_of(field):
        schema |= {"minLength": 1, "maxLength": _LONGEST}
    if defaults:
        schema |= _default(field)
    return schema


def _default(field: dataclasses.Field[Any]) -> Schema:
    """Return the default as the API server is to fill it in, or nothing."""
    try:
        value = default_of(field)
    except LookupError:
        return {}
    if dataclasses.is_dataclass(value):
        # an object that is empty is filled in from its own fields' defaults
        return {"default": render(value)}
    return {"default": value} if isinstance(value, bool) or value not in ("", (), {}, None) else {}


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
