"""Settings as frozen dataclasses of plain values: how they are declared, read and checked.

A field is a str, int, float or bool with a default; its name with '-' for '_' is the option of
the command line and the key of a YAML file, in capitals behind SLUICEGATE_<JOB>_ the variable of
the environment. Callers: the settings themselves, the CLI.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from sluicegate.protocol.errors import SettingsInvalid

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

NOTHING_STARTED = "nothing was started"

_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


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
        default: its default, which says its type too.
        text: its help.
        choices: the only values that it may have, where they can be listed.
        above: a number that it must be greater than.
        at_least: the smallest number that it may be.
        at_most: the largest number that it may be.
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
    """Return the only values that a field may have; empty where any will do."""
    found: tuple[str, ...] = field.metadata.get("choices", ())
    return found


def key_of(name: str) -> str:
    """Return a field's name as it stands in files and on the command line."""
    return name.replace("_", "-")


def from_mapping(kind: type[T], given: Mapping[str, object], *, where: str = "settings") -> T:
    """Return settings from keys and values, such as those of a YAML file.

    Args:
        kind: a settings dataclass.
        given: keys with '-' or '_'.
        where: what the values come from, for errors.

    Raises:
        SettingsInvalid: a key is not known, or a value is not of its type or cannot work.
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


def read_file(kind: type[T], path: str | Path) -> T:
    """Return settings from a YAML file of keys and values.

    Raises:
        SettingsInvalid: there is no such file, it is no mapping, or see `from_mapping`.
    """
    return from_mapping(kind, load_yaml(path), where=str(path))


def load_yaml(path: str | Path) -> Mapping[str, object]:
    """Return a YAML file's mapping.

    Raises:
        SettingsInvalid: it cannot be read, or holds something else.
    """
    import yaml  # noqa: PLC0415 - only a file needs it

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsInvalid(
            f"the settings file {path} cannot be read: {error}",
            data=NOTHING_STARTED,
            do="give a YAML file of keys and values",
        ) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise SettingsInvalid(
            f"the settings file {path} holds a {type(loaded).__name__}, not keys and values",
            data=NOTHING_STARTED,
            do="write one `key: value` a line",
        )
    return loaded


def check_choices(settings: DataclassInstance) -> None:
    """Refuse a value that is not among its field's choices.

    Raises:
        SettingsInvalid: it is not; the message has the nearest one that is.
    """
    for field in dataclasses.fields(settings):
        allowed, value = choices_of(field), getattr(settings, field.name)
        if allowed and value not in allowed:
            raise SettingsInvalid(
                f"{key_of(field.name)} is {value!r}{_nearest(str(value), allowed)}",
                data=NOTHING_STARTED,
                do=f"use one of: {', '.join(allowed)}",
            )


def check_bounds(settings: DataclassInstance) -> None:
    """Refuse a number outside the bounds that its field declares.

    Raises:
        SettingsInvalid: one is.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        for name, (within, said) in _BOUNDS.items():
            bound = field.metadata.get(name)
            if bound is not None and not within(value, bound):
                raise SettingsInvalid(
                    f"{key_of(field.name)} is {value:g}; it must be {said} {bound:g}",
                    data=NOTHING_STARTED,
                    do="correct it",
                )


_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "above": (operator.gt, "above"),
    "at_least": (operator.ge, "at least"),
    "at_most": (operator.le, "at most"),
}


def unknown(key: str, known: Iterable[str], where: str) -> SettingsInvalid:
    """Return the error for a key that is not known, with the nearest that is."""
    names = sorted(known)
    return SettingsInvalid(
        f"{where}: there is no setting {key!r}{_nearest(key, names)}",
        data=NOTHING_STARTED,
        do=f"correct it or leave it out; there are: {', '.join(names)}",
    )


def _nearest(given: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(given.lower(), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _converted(value: object, wanted: type[Any], where: str) -> object:
    """Return a value as its field's type: YAML and the environment write some of them as text."""
    if wanted is bool and isinstance(value, str) and value.lower() in _TRUTHS:
        return _TRUTHS[value.lower()]
    if wanted is bool or isinstance(value, bool):
        fits = wanted is bool and isinstance(value, bool)
    elif wanted in (int, float) and isinstance(value, int | float | str):
        try:
            number = wanted(value)
        except ValueError:
            fits = False
        else:
            fits, value = isinstance(value, str) or number == value, number
    else:
        fits = isinstance(value, wanted)
    if not fits:
        raise SettingsInvalid(
            f"{where} is {value!r}, which is no {wanted.__name__}",
            data=NOTHING_STARTED,
            do="correct the value",
        )
    return value
