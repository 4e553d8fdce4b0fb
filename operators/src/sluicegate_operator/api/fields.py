"""Declaration of the resources' fields, and the names that they have in the API.

A resource is a frozen dataclass. Each field is a str, int, float, bool, an `Instant`, a tuple, a map
of strings, a nested dataclass, or one of these or None. The library's settings dataclasses are used
as they are (`library_settings`). The Python names follow Python's conventions and the API's names
follow those of Kubernetes: `timeout_s` is `timeoutSeconds`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from sluicegate.errors import SettingsInvalid

GROUP = "sluicegate.dev"
VERSION = "v1alpha1"

Instant = Annotated[float, "date-time"]
"""Seconds since 1970, rounded to milliseconds; RFC 3339 text in the API."""

Template = Mapping[str, Any]
"""Part of a Kubernetes object, such as a pod template. It is not parsed: the API server validates it
when the operator creates the object."""

SPEC_REJECTED = "a running driver continues with its old spec; no new driver is started"
"""What an invalid spec means for the data."""

CORRECT_IT = "correct the field and apply the resource again"

_UNITS = {"s": "Seconds", "ms": "Milliseconds"}
"""Units at the end of a Python name, as the Kubernetes API conventions spell them."""


@dataclass(frozen=True)
class Rule:
    """A validation rule that OpenAPI cannot express, in CEL and in Python.

    The API server evaluates `cel` when a resource is written. The operator evaluates `holds` when it
    reads one, because a stored resource may be older than its schema.

    Args:
        cel: the rule in CEL; `self` is the object that the rule belongs to.
        message: what is wrong and what to do about it.
        holds: the same rule in Python. None for transition rules (`oldSelf`), which only the API
            server can evaluate.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None


def spec_field(  # noqa: PLR0913 - keyword-only attributes of one field
    description: str,
    *,
    default: Any = dataclasses.MISSING,  # noqa: ANN401 - a dataclass field of any type
    default_factory: Any = dataclasses.MISSING,  # noqa: ANN401 - the same
    choices: tuple[str, ...] = (),
    at_least: float | None = None,
    pattern: str = "",
    restarts_driver: bool = True,
    always_written: bool = False,
) -> Any:  # noqa: ANN401 - the same
    """Return a field of a resource.

    Args:
        description: the text of `kubectl explain`.
        default: the default value; a field with neither default nor default_factory is required.
        default_factory: a function that returns the default value.
        choices: the permitted values, for an enum.
        at_least: the minimum of a number.
        pattern: a regular expression (RE2) that a string must match.
        restarts_driver: whether a change of the field needs a new driver.
        always_written: whether the field is written even when it has its default value. For fields
            that people read.
    """
    metadata = {
        "help": description,
        "choices": choices,
        "restarts_driver": restarts_driver,
        "always_written": always_written,
    }
    if at_least is not None:
        metadata["at_least"] = at_least
    if pattern:
        metadata["pattern"] = pattern
    given: dict[str, Any] = {}
    if default_factory is not dataclasses.MISSING:
        given["default_factory"] = default_factory
    elif default is not dataclasses.MISSING:
        given["default"] = default
    return dataclasses.field(metadata=metadata, kw_only=True, **given)


def camel_case(name: str) -> str:
    """Return a Python name in camelCase, with its unit spelled out."""
    first, *rest = name.split("_")
    if rest and rest[-1] in _UNITS:
        rest[-1] = _UNITS[rest[-1]]
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def check_rules(thing: object, rules: Iterable[Rule], where: str) -> None:
    """Validate an object against its rules.

    Raises:
        SettingsInvalid: a rule is broken; the error has the rule's message.
    """
    for rule in rules:
        if rule.holds is not None and not rule.holds(thing):
            raise SettingsInvalid(f"{where}: {rule.message}", data=SPEC_REJECTED, do=CORRECT_IT)
