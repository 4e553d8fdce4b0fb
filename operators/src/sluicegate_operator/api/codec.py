"""Conversion between the API's JSON objects and the typed resources.

This is the only place that translates names and enum values: `restart_delay_s` is `delaySeconds` in
the API, and the library's 'exactly-once' is `ExactlyOnce`. The schema (`openapi`) lets the API server
validate the same declarations. `parse` validates them again, because a stored object may be older than
its schema. Its errors begin with what the object is part of, such as 'StreamingJob shop/clicks: spec'.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from sluicegate.settings.formats import Format, notation_of, without_none
from sluicegate.settings.schema import choices_of, default_of, is_required
from sluicegate_operator.api.fields import SPEC_REJECTED, Rule, camel_case
from sluicegate_operator.api.library_settings import LIBRARY_SETTINGS, enum_name


class Api(Format):
    """The format of the Kubernetes API: camelCase names."""

    noun = "field"
    data = SPEC_REJECTED
    separator = "."
    remedy = "{} the field and apply the resource again"

    def key(self, kind: type[object], name: str) -> str:
        """Return the API name of a dataclass's field."""
        settings = LIBRARY_SETTINGS.get(kind)
        if settings is None:
            return camel_case(name)
        return settings.renamed.get(name) or camel_case(name.removeprefix(settings.prefix))

    def scalar(self, wanted: type[object], value: Any) -> object:  # noqa: ANN401 - as it was given
        """Return a plain value as its type; of equal texts, such as reasons, memory has one."""
        checked = super().scalar(wanted, value)
        return sys.intern(checked) if type(checked) is str else checked

    def values(self, kind: type[object], field: dataclasses.Field[Any]) -> dict[str, str]:
        """Return the permitted values of a field in Python by their API names; empty for no enum."""
        translated = kind in LIBRARY_SETTINGS
        return {enum_name(v) if translated else v: v for v in choices_of(field)}

    def check(self, kind: type[object], values: Mapping[str, Any], where: str) -> None:
        """Check the rules of a dataclass. Not its constructor, whose errors have the Python names."""
        made = types.SimpleNamespace(**values)
        for rule in rules_of(kind):
            if rule.holds is not None and not rule.holds(made):
                raise self._error(f"{where}: {rule.message}", self.remedy.format("correct"))

    def without_unknown(
        self, kind: type[object], given: object, where: str = ""
    ) -> tuple[Any, tuple[str, ...]]:
        """Return an object without the fields that this release does not know, and their paths.

        A newer release has written them, or a newer CustomResourceDefinition allows them.
        """
        if not isinstance(given, Mapping):
            return given, ()
        kept, unknown = {}, list[str]()
        for name, value in given.items():
            path = f"{where}{self.separator}{name}" if where else str(name)
            declared = self.fields(kind).get(str(name))
            if declared is None:
                unknown.append(path)
                continue
            kept[name], below = self._known_part(without_none(declared[1]), value, path)
            unknown += below
        return kept, tuple(unknown)

    def _known_part(self, hint: Any, value: Any, path: str) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401 - JSON
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self.without_unknown(hint, value, path)
        if get_origin(hint) is not tuple or not isinstance(value, list):
            return value, ()
        item, kept, unknown = get_args(hint)[0], [], list[str]()
        for index, one in enumerate(value):
            known, below = self._known_part(item, one, f"{path}[{index}]")
            kept.append(known)
            unknown += below
        return kept, tuple(unknown)

    def render(self, made: object, *, defaults: bool = False) -> dict[str, Any]:
        """Return the JSON object of a typed resource.

        Fields that have their default value are left out, except those that are declared
        `always_written`. With `defaults` they are written as the API server would fill them in, so the
        object means the same to a release that has other defaults.
        """
        rendered = {}
        for name, (field, hint) in self.fields(type(made)).items():
            value = getattr(made, field.name)
            written = field.metadata.get("always_written") or is_required(field)
            if not written:
                default = value == default_of(field)
                written = has_default_in_schema(value) if default and defaults else not default
            if written:
                rendered[name] = self.render_value(
                    type(made), field, hint, value, defaults=defaults
                )
        return rendered

    def render_value(
        self,
        kind: type[object],
        field: dataclasses.Field[Any],
        hint: Any,  # noqa: ANN401 - a type hint
        value: Any,  # noqa: ANN401 - of the field's type
        *,
        defaults: bool = False,
    ) -> Any:  # noqa: ANN401 - JSON
        """Return a field's value as JSON."""
        names = {python: name for name, python in self.values(kind, field).items()}
        return names[value] if names else self._rendered(without_none(hint), value, defaults)

    def _rendered(self, hint: Any, value: Any, defaults: bool) -> Any:  # noqa: ANN401, FBT001 - JSON
        notation = notation_of(hint)
        if notation is not None and value is not None:
            return notation.render(value)
        if isinstance(value, tuple):
            return [self._rendered(get_args(hint)[0], item, defaults) for item in value]
        if isinstance(value, Mapping):
            return dict(value.items())
        if dataclasses.is_dataclass(value):
            return self.render(value, defaults=defaults)
        return value


def has_default_in_schema(value: object) -> bool:
    """Return whether a default value is part of the schema: an empty one means that a field is not set."""
    return isinstance(value, bool) or value not in ("", (), {}, None)


API = Api()
parse, render = API.parse, API.render


def rules_of(kind: type[object]) -> tuple[Rule, ...]:
    """Return the validation rules of a dataclass."""
    settings = LIBRARY_SETTINGS.get(kind)
    rules: tuple[Rule, ...] = settings.rules if settings else getattr(kind, "RULES", ())
    return rules


def rules_of_field(kind: type[object], field: str) -> tuple[Rule, ...]:
    """Return the validation rules of a field, which only the API server evaluates."""
    rules: tuple[Rule, ...] = getattr(kind, "FIELD_RULES", {}).get(field, ())
    return rules


def description_of(kind: type[object], field: dataclasses.Field[Any]) -> str:
    """Return the description of a field for `kubectl explain`."""
    settings = LIBRARY_SETTINGS.get(kind)
    text: str = settings.descriptions[field.name] if settings else field.metadata["help"]
    return text
