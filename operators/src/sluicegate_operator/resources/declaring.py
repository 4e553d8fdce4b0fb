"""How a resource's fields are declared, and their names in YAML.

A field is a str, int, float, bool, an instant, a tuple, a map of strings, a nested dataclass, or
one of these or None. Settings of the library (`sluicegate.settings`) are fields as they are. Not
here: what is made of a declaration (`parsing`, `openapi`). Called by the resources.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.restart import RestartSettings

GROUP = "sluicegate.dev"
VERSION = "v1alpha1"

Instant = Annotated[float, "date-time"]
"""Seconds since 1970, to the millisecond; RFC 3339 in the resource."""

Template = Mapping[str, Any]
"""Part of a Kubernetes object, such as a pod template: kept as it is, checked by the API server."""

LEFT_ALONE = "a driver that runs is left as it is; none is started"

_PREFIXES: dict[type[object], str] = {RestartSettings: "restart"}
"""Settings whose fields all begin with a word that the resource's own field says already."""

_ALONE = "strategy"
"""The name of the field that is nothing but the prefix."""


@dataclass(frozen=True)
class Rule:
    """What a schema cannot say, in two forms: for the API server, and for the operator.

    Args:
        cel: the rule in CEL; `self` is the object that the rule belongs to.
        message: what the reader did wrong, and what to do.
        holds: the same rule in Python; None for rules about a change (`oldSelf`), which only the
            API server can see.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None


def described(  # noqa: PLR0913 - each is a word about one field, given by name
    text: str,
    *,
    default: Any = dataclasses.MISSING,  # noqa: ANN401 - a dataclass field of any type
    made: Any = dataclasses.MISSING,  # noqa: ANN401 - the same
    choices: tuple[str, ...] = (),
    at_least: float | None = None,
    pattern: str = "",
    restarts: bool = True,
    shown: bool = False,
) -> Any:  # noqa: ANN401 - the same
    """Return a field of a resource.

    Args:
        text: its description.
        default: its default; with neither this nor `made` the field must be given.
        made: a function that returns its default.
        choices: the only values that it may have.
        at_least: the smallest number that it may be.
        pattern: a regular expression (RE2) that a text matches as a whole.
        restarts: whether a change of it needs a new driver.
        shown: whether it is written also where it is at its default: people look at it.
    """
    metadata = {"help": text, "choices": choices, "restarts": restarts, "shown": shown}
    if at_least is not None:
        metadata["at_least"] = at_least
    if pattern:
        metadata["pattern"] = pattern
    given: dict[str, Any] = {}
    if made is not dataclasses.MISSING:
        given["default_factory"] = made
    elif default is not dataclasses.MISSING:
        given["default"] = default
    return dataclasses.field(metadata=metadata, kw_only=True, **given)


def name_of(kind: type[object], field: str) -> str:
    """Return a field's name in the resource: camelCase, without what its parent has said."""
    prefix = _PREFIXES.get(kind, "")
    if prefix:
        field = _ALONE if field == prefix else field.removeprefix(f"{prefix}_")
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def rules_of(kind: type[object]) -> tuple[Rule, ...]:
    """Return the rules of a dataclass: its attribute RULES, or those of the library's settings."""
    found: tuple[Rule, ...] = getattr(kind, "RULES", SETTINGS_RULES.get(kind.__name__, ()))
    return found


SETTINGS_RULES: dict[str, tuple[Rule, ...]] = {
    "EpochSettings": (
        Rule(
            "!has(self.maxConcurrent) || self.maxConcurrent == 1",
            "maxConcurrent must be 1: an epoch starts where the one before ends; "
            "overlap: true applies one epoch while the next is staged",
        ),
        Rule(
            "!has(self.stateBackend) || self.stateBackend != 'memory'",
            "stateBackend must not be memory: state would be gone with the driver; "
            "use rocksdb, or hdfs for small state",
        ),
        Rule(
            "!has(self.interval) || "
            r"self.interval.matches('(?i)^\\s*[0-9]+\\s*(millisecond|second|minute|hour)s?\\s*$')",
            "interval must be a number and milliseconds, seconds, minutes or hours; "
            "a job that ends by itself has another spec.trigger",
        ),
    ),
}
"""Rules that the settings check themselves when they are made: `holds` is their constructor.

Each allows for a field that is not there: the API server checks the default of the object, `{}`, by
its rules before it has filled in the fields' own defaults.
"""


def check_rules(thing: object, rules: Iterable[Rule], where: str) -> None:
    """Refuse what breaks a rule.

    Raises:
        SettingsInvalid: it does; the text is the rule's.
    """
    for rule in rules:
        if rule.holds is not None and not rule.holds(thing):
            raise SettingsInvalid(
                f"{where}: {rule.message}", data=LEFT_ALONE, do="correct it and apply it again"
            )
