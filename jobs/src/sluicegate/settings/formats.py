"""Parsing, validation and rendering of declared dataclasses.

A `Format` is how dataclasses appear outside of Python. SETTINGS is the format of a job's settings in
files, in its environment and on the command line. The operator adds the format of its API.
docs/decisions/0056 says why this is not pydantic.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sluicegate.errors import SettingsInvalid
from sluicegate.settings.schema import (
    NOTHING_STARTED,
    choices_of,
    default_of,
    is_required,
    key_of,
)

T = TypeVar("T")

Fields = Mapping[str, tuple[dataclasses.Field[Any], Any]]
"""The fields of a dataclass and their type hints, by key."""


@dataclass(frozen=True)
class Notation:
    """How values of an annotated type are written.

    Args:
        parse: returns the value for a text, or raises ValueError.
        wanted: what the text must be, for errors.
        render: the reverse of `parse`.
    """

    parse: Callable[[str], object]
    wanted: str
    render: Callable[[Any], str] = str


class Format:
    """How dataclasses are written as keys and values; the types are those of JSON.

    The type of a field is a str, int, float, bool, a tuple, a map from strings, a nested dataclass,
    one of these or None, or one that is annotated with its `Notation`.
    """

    noun = "setting"
    """What a key is, for errors."""
    data = NOTHING_STARTED
    """What an error means for the data."""
    remedy = "{} the value"
    """What to do about an error; {} is a verb."""
    separator = ": "
    """What is between the origin of the values and a key, in errors."""

    def __init__(self) -> None:
        self._fields: dict[type[object], Fields] = {}

    def key(self, kind: type[object], name: str) -> str:  # noqa: ARG002 - of other formats
        """Return the key of a dataclass's field."""
        return name

    def spelling(self, key: str) -> str:
        """Return a given key as `key` spells it."""
        return key

    def values(self, kind: type[object], field: dataclasses.Field[Any]) -> dict[str, str]:  # noqa: ARG002
        """Return a field's allowed values in Python by their names in the format; empty: any value."""
        return {choice: choice for choice in choices_of(field)}

    def scalar(self, wanted: type[object], value: Any) -> object:  # noqa: ANN401 - as it was given
        """Return a plain value as its type, or raise ValueError."""
        if wanted is float and type(value) is int:
            return float(value)
        if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
            raise ValueError
        return value

    def check(self, kind: type[object], values: Mapping[str, Any], where: str) -> None:
        """Check what concerns several fields of a dataclass, before it is constructed."""

    def fields(self, kind: type[object]) -> Fields:
        """Return the fields of a dataclass. Cached, because evaluating type hints is slow."""
        if kind not in self._fields:
            assert dataclasses.is_dataclass(kind), kind
            hints = get_type_hints(kind, include_extras=True)
            declared = dataclasses.fields(kind)
            self._fields[kind] = {self.key(kind, f.name): (f, hints[f.name]) for f in declared}
        return self._fields[kind]

    def parse(self, kind: type[T], given: object, where: str) -> T:
        """Return a dataclass from keys and values.

        Args:
            kind: a dataclass.
            given: the keys and values.
            where: the origin of the keys and values, for errors, such as 'job.yaml'.

        Raises:
            SettingsInvalid: a key is unknown or missing, or a value is invalid.
        """
        if not isinstance(given, Mapping):
            raise self.invalid(where, given, "a mapping")
        fields = self.fields(kind)
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = self.spelling(str(key))
            if name not in fields:
                raise self.unknown(str(key), fields, where)
            field, hint = fields[name]
            at = f"{where}{self.separator}{name}"
            values[field.name] = self._value(kind, field, hint, value, at)
        missing = [key for key, (f, _) in fields.items() if is_required(f) and f.name not in values]
        if missing:
            raise self._error(f"{where} lacks {', '.join(missing)}", self.remedy.format("add"))
        defaults = {f.name: default_of(f) for f, _ in fields.values() if f.name not in values}
        self.check(kind, {**defaults, **values}, where)
        return kind(**values)

    def check_fields(self, made: object) -> None:
        """Check the choices and bounds of a dataclass that Python code constructed.

        Raises:
            SettingsInvalid: a value is invalid.
        """
        for key, (field, _) in self.fields(type(made)).items():
            self._check_limits(field, getattr(made, field.name), choices_of(field), key)

    def invalid(self, where: str, value: object, wanted: str) -> SettingsInvalid:
        """Return the error for an invalid value."""
        return self._error(
            f"{where} is {value!r}; it must be {wanted}", self.remedy.format("correct")
        )

    def unknown(self, key: str, known: Iterable[str], where: str) -> SettingsInvalid:
        """Return the error for an unknown key; it suggests the closest known one."""
        names = sorted(known)
        return self._error(
            f"{where}: unknown {self.noun} {key!r}{_did_you_mean(key, names)}",
            f"correct or remove it; the {self.noun}s are: {', '.join(names)}",
        )

    def _error(self, what: str, do: str) -> SettingsInvalid:
        return SettingsInvalid(what, data=self.data, do=do)

    def _value(
        self,
        kind: type[object],
        field: dataclasses.Field[Any],
        hint: Any,  # noqa: ANN401 - a type hint
        value: object,
        where: str,
    ) -> object:
        """Return a field's value in Python, after validation."""
        values = self.values(kind, field)
        converted = value if values else self._converted(hint, value, where)
        self._check_limits(field, converted, tuple(values), where)
        return values[str(value)] if values else converted

    def _check_limits(
        self,
        field: dataclasses.Field[Any],
        value: Any,  # noqa: ANN401 - of the field's type
        choices: tuple[str, ...],
        where: str,
    ) -> None:
        if choices and value not in choices:
            near = _did_you_mean(str(value), choices)
            raise self.invalid(where, value, f"one of {', '.join(choices)}{near}")
        for name, limit in field.metadata.get("limits", {}).items():
            within, words = _LIMITS[name]
            if not within(value, limit):
                raise self.invalid(where, value, words.format(limit))

    def _converted(self, hint: Any, value: Any, where: str) -> object:  # noqa: ANN401 - a type hint
        """Return a value as the type of its hint."""
        hint = without_none(hint)
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is tuple:
            if not isinstance(value, list):
                raise self.invalid(where, value, "a list")
            items = enumerate(value)
            return tuple(self._converted(arguments[0], v, f"{where}[{i}]") for i, v in items)
        if origin is not None and origin is not Annotated:
            if not isinstance(value, Mapping):
                raise self.invalid(where, value, "a mapping")
            return {k: self._converted(arguments[1], v, f"{where}[{k}]") for k, v in value.items()}
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self.parse(hint, value, where)
        notation = notation_of(hint)
        try:
            if notation is not None:
                return notation.parse(str(value))
            return value if hint in (Any, object) else self.scalar(hint, value)
        except ValueError as error:
            wanted = notation.wanted if notation else _TYPE_NAMES.get(hint, f"of type {hint}")
            raise self.invalid(where, value, wanted) from error


class _Settings(Format):
    """The format of files, of the environment and of the command line.

    Keys are Python's names, with dashes or underscores. Text may stand for a number or a boolean.
    """

    def key(self, kind: type[object], name: str) -> str:  # noqa: ARG002 - of other formats
        """Return the key of a field, with dashes."""
        return key_of(name)

    def spelling(self, key: str) -> str:
        """Return a key with dashes."""
        return key_of(key)

    def scalar(self, wanted: type[object], value: Any) -> object:  # noqa: ANN401 - as it was given
        """Return a plain value as its type, or raise ValueError."""
        if isinstance(value, str) and wanted is bool:
            value = _BOOLEANS.get(value.strip().lower())
        elif isinstance(value, str) and wanted in (int, float):
            value = int(value) if wanted is int else float(value)
        elif wanted is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        return super().scalar(wanted, value)


SETTINGS = _Settings()

_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "t", "y", "1"), True),
    **dict.fromkeys(("false", "no", "off", "f", "n", "0"), False),
}
"""Texts that stand for a boolean: YAML's, and those of click's options."""

_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}

_LIMITS: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "above": (operator.gt, "greater than {:g}"),
    "at_least": (operator.ge, "at least {:g}"),
    "at_most": (operator.le, "at most {:g}"),
    "pattern": (lambda value, limit: re.search(limit, value), "a string that matches {}"),
}


def without_none(hint: Any) -> Any:  # noqa: ANN401 - a type hint
    """Return X for the type hint 'X or None', and any other hint unchanged."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(arg for arg in get_args(hint) if arg is not type(None))
    return hint


def notation_of(hint: Any) -> Notation | None:  # noqa: ANN401 - a type hint
    """Return the notation that a type hint is annotated with."""
    return get_args(hint)[1] if get_origin(hint) is Annotated else None


def _did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelled name, whatever its case and separators."""
    folded = {_folded(name): name for name in known}
    near = difflib.get_close_matches(_folded(given), list(folded), n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def _folded(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()
