"""Conversion between the API's JSON objects and the typed resources.

This is the only place that translates names and enum values: `restart_delay_s` is `delaySeconds` in
the API, and the library's 'exactly-once' is `ExactlyOnce`. The schema (`openapi`) lets the API server
validate the same declarations. `parse` validates them again, because a stored object may be older than
its schema.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.fields import CORRECT_IT, SPEC_REJECTED, check_rules
from sluicegate_operator.api.library_settings import (
    LIBRARY_SETTINGS,
    enum_values,
    field_name,
    rules_of,
)
from sluicegate_operator.kube.timestamps import to_instant, to_text

T = TypeVar("T")


def parse(kind: type[T], given: object, where: str) -> T:
    """Return the typed form of a JSON object.

    Args:
        kind: a dataclass of this package, or a settings dataclass of the library.
        given: the JSON object.
        where: what it is part of, for errors, such as 'StreamingJob shop/clicks: spec'.

    Raises:
        SettingsInvalid: a field is unknown or missing, a value is invalid, or a rule is broken.
    """
    if not isinstance(given, Mapping):
        raise _invalid(where, given, "a mapping")
    fields = _fields(_dataclass(kind))
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in fields:
            raise _unknown(str(key), fields, where)
        declared, hint = fields[key]
        values[declared.name] = _value(kind, declared, hint, value, f"{where}.{key}")
    missing = [name for name, (f, _) in fields.items() if f.name not in values and is_required(f)]
    if missing:
        raise SettingsInvalid(
            f"{where} lacks {', '.join(missing)}",
            data=SPEC_REJECTED,
            do="add it and apply the resource again",
        )
    if kind in LIBRARY_SETTINGS:
        # before the constructor, whose errors have the Python names
        complete = {f.name: default_of(f) for f, _ in fields.values() if not is_required(f)}
        check_rules(types.SimpleNamespace(**{**complete, **values}), rules_of(kind), where)
        return kind(**values)
    made = kind(**values)
    check_rules(made, rules_of(kind), where)
    return made


def render(thing: object) -> dict[str, Any]:
    """Return the JSON object of a typed resource.

    Fields that have their default value are left out, except those that are declared
    `always_written`.
    """
    kind, rendered = type(thing), {}
    for name, (declared, hint) in _fields(_dataclass(kind)).items():
        value = getattr(thing, declared.name)
        written = declared.metadata.get("always_written", False) or is_required(declared)
        if written or value != default_of(declared):
            rendered[name] = render_value(kind, declared, hint, value)
    return rendered


def render_value(
    kind: type[object],
    declared: dataclasses.Field[Any],
    hint: Any,  # noqa: ANN401 - a type hint
    value: Any,  # noqa: ANN401 - of the field's type
) -> Any:  # noqa: ANN401 - JSON
    """Return a field's value as JSON."""
    names = {python: name for name, python in enum_values(kind, declared).items()}
    return names[value] if names else _rendered(hint, value)


def is_required(declared: dataclasses.Field[Any]) -> bool:
    """Return whether a field has no default."""
    missing = dataclasses.MISSING
    return declared.default is missing and declared.default_factory is missing


def default_of(declared: dataclasses.Field[Any]) -> Any:  # noqa: ANN401 - of the field's type
    """Return the default of a field that is not required."""
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return declared.default


def without_none(hint: Any) -> Any:  # noqa: ANN401 - a type hint
    """Return X for the type hint 'X or None', and any other hint unchanged."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(arg for arg in get_args(hint) if arg is not type(None))
    return hint


def is_instant(hint: Any) -> bool:  # noqa: ANN401 - a type hint
    """Return whether a type hint is `Instant`."""
    return get_origin(hint) is Annotated


@functools.cache
def _fields(kind: type[object]) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """Return a dataclass's fields and their type hints by API name.

    Cached: evaluating the hints would take most of a reconciliation's time.
    """
    hints = get_type_hints(kind, include_extras=True)
    declared = dataclasses.fields(_dataclass(kind))
    return {field_name(kind, f.name): (f, hints[f.name]) for f in declared}


def _dataclass(kind: Any) -> Any:  # noqa: ANN401 - any dataclass
    assert dataclasses.is_dataclass(kind), kind
    return kind


def _value(
    kind: type[object],
    declared: dataclasses.Field[Any],
    hint: Any,  # noqa: ANN401 - a type hint
    value: object,
    where: str,
) -> object:
    """Return a field's value in Python, after validation."""
    values = enum_values(kind, declared)
    if values:
        if value not in values:
            near = _did_you_mean(str(value), values)
            raise _invalid(where, value, f"one of {', '.join(values)}{near}")
        return values[str(value)]
    converted = _converted(hint, value, where)
    _check_bounds(declared, converted, where)
    return converted


def _converted(hint: Any, value: object, where: str) -> object:  # noqa: ANN401 - a type hint
    """Return a JSON value as the type of its hint."""
    hint = without_none(hint)
    if is_instant(hint):
        return _instant(value, where)
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise _invalid(where, value, "a list")
        return tuple(_converted(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None:
        return _mapping(args[1], value, where)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return parse(hint, value, where)
    return _plain(hint, value, where)


def _mapping(inner: Any, value: object, where: str) -> Mapping[str, object]:  # noqa: ANN401 - a type hint
    if not isinstance(value, Mapping):
        raise _invalid(where, value, "a mapping")
    if inner is not str:
        return value
    return {key: str(_plain(str, item, f"{where}[{key}]")) for key, item in value.items()}


def _instant(value: object, where: str) -> float:
    try:
        return to_instant(str(value))
    except ValueError as error:
        raise _invalid(where, value, "a time such as 2026-01-31T12:00:00Z") from error


_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


def _plain(wanted: type[Any], value: object, where: str) -> object:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) is not (wanted is bool) or not isinstance(value, wanted):
        raise _invalid(where, value, _TYPE_NAMES[wanted])
    return value


def _check_bounds(declared: dataclasses.Field[Any], value: object, where: str) -> None:
    """Validate a value against the bounds and the pattern of its field."""
    bounds = declared.metadata
    if "pattern" in bounds and isinstance(value, str) and not re.search(bounds["pattern"], value):
        raise _invalid(where, value, f"a string that matches {bounds['pattern']}")
    if not isinstance(value, int | float):
        return
    if "at_least" in bounds and value < bounds["at_least"]:
        raise _invalid(where, value, f"at least {bounds['at_least']:g}")
    if "above" in bounds and value <= bounds["above"]:
        raise _invalid(where, value, f"greater than {bounds['above']:g}")
    if "at_most" in bounds and value > bounds["at_most"]:
        raise _invalid(where, value, f"at most {bounds['at_most']:g}")


def _rendered(hint: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    hint = without_none(hint)
    if value is None:
        return None
    if is_instant(hint):
        return to_text(value)
    if isinstance(value, tuple):
        return [_rendered(get_args(hint)[0], item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return render(value) if dataclasses.is_dataclass(value) else value


def _unknown(key: str, known: Iterable[str], where: str) -> SettingsInvalid:
    names = sorted(known)
    return SettingsInvalid(
        f"{where}: unknown field {key!r}{_did_you_mean(key, names)}",
        data=SPEC_REJECTED,
        do=f"correct or remove it; the fields are: {', '.join(names)}",
    )


def _invalid(where: str, value: object, wanted: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"{where} is {value!r}; it must be {wanted}", data=SPEC_REJECTED, do=CORRECT_IT
    )


def _did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelled name, whatever its case and separators."""
    folded = {_folded(name): name for name in known}
    near = difflib.get_close_matches(_folded(given), list(folded), n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def _folded(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()
