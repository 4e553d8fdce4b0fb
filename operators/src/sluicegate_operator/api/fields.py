"""What the resources are declared with, besides `sluicegate.settings.schema.option`.

A resource is a frozen dataclass. Each field is a str, int, float, bool, an `Instant`, a tuple, a map
of strings, a nested dataclass, or one of these or None. The library's settings dataclasses are used
as they are (`library_settings`). The Python names follow Python's conventions and the API's names
follow those of Kubernetes: `timeout_s` is `timeoutSeconds`.

An option has two attributes of its own here. `restarts_driver`: whether a change of the field needs a new
driver; true by default. `always_written`: whether the field is written even when it has its default
value, for fields that people read; false by default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from sluicegate.settings.formats import Notation
from sluicegate_operator.kube.timestamps import to_instant, to_text

GROUP = "sluicegate.dev"
VERSION = "v1alpha1"


Instant = Annotated[float, Notation(to_instant, "a time such as 2026-01-31T12:00:00Z", to_text)]
"""Seconds since 1970, rounded to milliseconds; RFC 3339 text in the API."""

Template = Mapping[str, Any]
"""Part of a Kubernetes object, such as a pod template. It is not parsed: the API server validates it
when the operator creates the object."""


class PackedObject(Mapping[str, Any]):  # noqa: PLW1641 - as unhashable as a dictionary
    """A JSON object stored as text and parsed on each access: a fifth of the memory of dictionaries.

    For what every cached resource has and few reconciliations read.
    """

    __slots__ = ("text",)

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Store an object; changes of `given` afterwards have no effect."""
        if isinstance(given, PackedObject):
            self.text: str = given.text
        else:
            self.text = json.dumps(dict(given), separators=(",", ":"))

    def _parsed(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.text)
        return parsed

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - JSON
        """Return a field's value."""
        return self._parsed()[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the fields."""
        return iter(self._parsed())

    def __len__(self) -> int:
        """Return the number of fields."""
        return len(self._parsed())

    def items(self) -> ItemsView[str, Any]:
        """Return names and values, parsed once."""
        return self._parsed().items()

    def __eq__(self, other: object) -> bool:
        """Return whether another mapping has the same fields, in any order."""
        if isinstance(other, PackedObject):
            return self.text == other.text or self._parsed() == other._parsed()
        return self._parsed() == other


SPEC_REJECTED = "a running driver continues with its old spec; no new driver is started"
"""What an invalid spec means for the data."""

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
            server can evaluate, and where a reconciler has a better message.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None


def camel_case(name: str) -> str:
    """Return a Python name in camelCase, with its unit spelled out."""
    first, *rest = name.split("_")
    if rest and rest[-1] in _UNITS:
        rest[-1] = _UNITS[rest[-1]]
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
