"""From the API's dictionaries to typed resources, and back.

Not here: the schema by which the API server checks the same (`openapi`); what it has let in is
checked again, because an object may be older than its schema. Called by the operator.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.schema import choices_of, unknown
from sluicegate_operator.resources.declaring import LEFT_ALONE, check_rules, name_of, rules_of

T = TypeVar("T")


def parse(kind: type[T], given: object, where: str) -> T:
    """Return a resource's part from what the API gave.

    Args:
        kind: a dataclass of `resources`, or settings of the library.
        given: a JSON object with camelCase keys.
        where: what it is of, for errors, such as 'StreamingJob shop/clicks: spec'.

    Raises:
        SettingsInvalid: a key is unknown or missing, a value does not fit, or a rule is broken.
    """
    if not isinstance(given, Mapping):
        raise _wrong(where, given, "a mapping")
    fields = {name_of(kind, f.name): f for f in dataclasses.fields(_dataclass(kind))}
    hints = _hints(_dataclass(kind))
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in fields:
            found = unknown(key, fields, where)
            raise SettingsInvalid(found.what, data=LEFT_ALONE, do=found.do)
        field, inside = fields[key], f"{where}.{key}"
        values[field.name] = _value(hints[field.name], value, inside)
        _check(field, values[field.name], inside)
    missing = [name for name, f in fields.items() if f.name not in values and _needed(f)]
    if missing:
        raise SettingsInvalid(
            f"{where} lacks {', '.join(missing)}", data=LEFT_ALONE, do="add it and apply it again"
        )
    try:
        made = kind(**values)
    except SettingsInvalid as error:
        raise SettingsInvalid(f"{where}: {error.what}", data=LEFT_ALONE, do=error.do) from error
    check_rules(made, rules_of(kind), where)
    return made


def render(thing: object) -> dict[str, Any]:
    """Return a dataclass as the API takes it; fields at their default are left out, but for `shown`."""
    kind, rendered = type(thing), {}
    hints = _hints(_dataclass(kind))
    for field in dataclasses.fields(_dataclass(kind)):
        value = getattr(thing, field.name)
        shown = field.metadata.get("shown", False)
        if shown or _needed(field) or value != default_of(field):
            rendered[name_of(kind, field.name)] = _rendered(hints[field.name], value)
    return rendered


def default_of(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401 - of the field's type
    """Return a field's default.

    Raises:
        LookupError: it has none.
    """
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise LookupError(field.name)


def without_none(hint: Any) -> Any:  # noqa: ANN401 - a type hint
    """Return X of 'X or None', anything else as it is."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(arg for arg in get_args(hint) if arg is not type(None))
    return hint


def is_instant(hint: Any) -> bool:  # noqa: ANN401 - a type hint
    """Say whether a hint is `Instant`."""
    return get_origin(hint) is Annotated


def to_text(instant: float) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds."""
    at = dt.datetime.fromtimestamp(round(instant, 3), dt.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_instant(text: str) -> float:
    """Return the instant that RFC 3339 names.

    Raises:
        ValueError: it names none.
    """
    return round(dt.datetime.fromisoformat(text).timestamp(), 3)


@functools.cache
def _hints(kind: type[object]) -> dict[str, Any]:
    """Return a dataclass's hints; they are texts that are compiled, which is most of a pass's time."""
    return get_type_hints(kind, include_extras=True)


def _needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _dataclass(kind: Any) -> Any:  # noqa: ANN401 - narrows nothing, says what must be
    assert dataclasses.is_dataclass(kind), kind
    return kind


def _value(hint: Any, value: object, where: str) -> object:  # noqa: ANN401 - a type hint
    """Return a value as its field's type."""
    hint = without_none(hint)
    if is_instant(hint):
        return _instant(value, where)
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        return tuple(_value(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None:
        return _mapping(args[1], value, where)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return parse(hint, value, where)
    return _plain(hint, value, where)


def _mapping(inner: Any, value: object, where: str) -> Mapping[str, object]:  # noqa: ANN401 - a type hint
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "a mapping")
    if inner is not str:
        return value
    return {key: str(_plain(str, item, f"{where}[{key}]")) for key, item in value.items()}


def _instant(value: object, where: str) -> float:
    try:
        return to_instant(str(value))
    except ValueError as error:
        raise _wrong(where, value, "a time such as 2026-01-31T12:00:00Z") from error


_SAID = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _plain(wanted: type[Any], value: object, where: str) -> object:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) is not (wanted is bool) or not isinstance(value, wanted):
        raise _wrong(where, value, _SAID[wanted])
    return value


def _check(field: dataclasses.Field[Any], value: object, where: str) -> None:
    """Refuse what is out of the bounds or choices of a resource's own field."""
    bound, allowed = field.metadata.get("at_least"), choices_of(field)
    pattern = field.metadata.get("pattern")
    if pattern and isinstance(value, str) and not re.search(pattern, value):
        raise _wrong(where, value, f"a text like {pattern}")
    if bound is not None and isinstance(value, int | float) and value < bound:
        raise _wrong(where, value, f"at least {bound:g}")
    if allowed and value not in allowed:
        raise _wrong(where, value, f"one of {', '.join(allowed)}")


def _rendered(hint: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    hint = without_none(hint)
    if is_instant(hint):
        return to_text(value)
    if isinstance(value, tuple):
        return [_rendered(get_args(hint)[0], item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return render(value) if dataclasses.is_dataclass(value) else value


def _wrong(where: str, value: object, wanted: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"{where} is {value!r}; it must be {wanted}",
        data=LEFT_ALONE,
        do="correct it and apply it again",
    )
