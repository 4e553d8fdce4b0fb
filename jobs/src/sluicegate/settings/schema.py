"""Settings as frozen dataclasses of plain values: declaration, parsing and validation.

A field is a str, int, float or bool with a default. `min_pause_ms` is the option
`--min-pause-ms`, the YAML key `min-pause-ms` and the variable `SLUICEGATE_<JOB>_MIN_PAUSE_MS`.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from sluicegate.errors import SettingsInvalid

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

NOTHING_STARTED = "nothing was started"

_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def option(
    default: Any,  # noqa: ANN401 - a dataclass field of any type
    text: str,
    *,
    choices: tuple[str, ...] = (),
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Any:  # noqa: ANN401 - the same
    """Return a settings field.

    Args:
        default: the default value; it also defines the type.
        text: the description, in complete sentences; `sluicegate run JOB --help` and
            `kubectl explain` show it.
        choices: the allowed values; empty: any.
        above: exclusive minimum.
        at_least: minimum.
        at_most: maximum.
    """
    bounds = {"above": above, "at_least": at_least, "at_most": at_most}
    return dataclasses.field(
        default=default,
        metadata={
            "help": text,
            "choices": choices,
            **{name: bound for name, bound in bounds.items() if bound is not None},
        },
    )


def choices_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the allowed values of a field; empty: any value."""
    choices: tuple[str, ...] = field.metadata.get("choices", ())
    return choices


def key_of(name: str) -> str:
    """Return a field's name as files and the command line spell it."""
    return name.replace("_", "-")


def from_mapping(kind: type[T], given: Mapping[str, object], *, where: str = "settings") -> T:
    """Return settings from keys and values, such as those of a YAML file.

    Args:
        kind: a settings dataclass.
        given: values by key; keys may use '-' or '_'.
        where: the origin of the values, for error messages.

    Raises:
        SettingsInvalid: a key is unknown, or a value has the wrong type or is invalid.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    types = get_type_hints(kind)
    values = {}
    for key, value in given.items():
        name = str(key).replace("-", "_")
        if name not in fields:
            raise unknown(str(key), map(key_of, fields), where)
        values[name] = _converted(value, types[name], f"{where}: {key}")
    return kind(**values)


def load_yaml(path: str | Path) -> Mapping[str, object]:
    """Return the mapping in a YAML file.

    Raises:
        SettingsInvalid: the file cannot be read or does not contain a mapping.
    """
    import yaml  # noqa: PLC0415 - needed only for settings files

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsInvalid(
            f"the settings file {path} cannot be read: {error}",
            data=NOTHING_STARTED,
            do="pass a YAML file of keys and values",
        ) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise SettingsInvalid(
            f"the settings file {path} contains a {type(loaded).__name__}, not keys and values",
            data=NOTHING_STARTED,
            do="write one `key: value` per line",
        )
    return loaded


def check_choices(settings: DataclassInstance) -> None:
    """Reject a value that is not one of its field's choices.

    Raises:
        SettingsInvalid: a value is not allowed; the message suggests the closest choice.
    """
    for field in dataclasses.fields(settings):
        allowed, value = choices_of(field), getattr(settings, field.name)
        if allowed and value not in allowed:
            raise SettingsInvalid(
                f"{key_of(field.name)} is {value!r}{_suggestion(str(value), allowed)}",
                data=NOTHING_STARTED,
                do=f"use one of: {', '.join(allowed)}",
            )


def check_bounds(settings: DataclassInstance) -> None:
    """Reject a number outside the bounds of its field.

    Raises:
        SettingsInvalid: a number is out of bounds.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        for name, (within, words) in _BOUNDS.items():
            bound = field.metadata.get(name)
            if bound is not None and not within(value, bound):
                raise SettingsInvalid(
                    f"{key_of(field.name)} is {value:g}; it must be {words} {bound:g}",
                    data=NOTHING_STARTED,
                    do="correct the value",
                )


_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "above": (operator.gt, "above"),
    "at_least": (operator.ge, "at least"),
    "at_most": (operator.le, "at most"),
}


def unknown(key: str, known: Iterable[str], where: str) -> SettingsInvalid:
    """Return the error for an unknown key; it suggests the closest known one."""
    names = sorted(known)
    return SettingsInvalid(
        f"{where}: there is no setting {key!r}{_suggestion(key, names)}",
        data=NOTHING_STARTED,
        do=f"correct or remove it; the settings are: {', '.join(names)}",
    )


def _suggestion(given: str, known: Iterable[str]) -> str:
    closest = difflib.get_close_matches(given.lower(), list(known), n=1)
    return f"; did you mean {closest[0]!r}?" if closest else ""


def _converted(value: object, wanted: type[Any], where: str) -> object:
    """Convert a value to its field's type: YAML and the environment give some of them as text."""
    if wanted is bool and isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    if wanted is bool or isinstance(value, bool):
        valid = wanted is bool and isinstance(value, bool)
    elif wanted in (int, float) and isinstance(value, int | float | str):
        try:
            number = wanted(value)
        except ValueError:
            valid = False
        else:
            valid, value = isinstance(value, str) or number == value, number
    else:
        valid = isinstance(value, wanted)
    if not valid:
        raise SettingsInvalid(
            f"{where} is {value!r}, which is not of type {wanted.__name__}",
            data=NOTHING_STARTED,
            do="correct the value",
        )
    return value
