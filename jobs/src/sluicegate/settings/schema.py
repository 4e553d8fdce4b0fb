"""Declaration of settings, as fields of frozen dataclasses of plain values.

`formats` parses and validates them. `min_pause_ms` is the option `--min-pause-ms`, the YAML key
`min-pause-ms` and the variable `SLUICEGATE_<JOB>_MIN_PAUSE_MS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sluicegate.errors import SettingsInvalid

NOTHING_STARTED = "nothing was started"


def option(  # noqa: PLR0913 - keyword-only attributes of one field
    default: Any,  # noqa: ANN401 - a dataclass field of any type
    text: str,
    *,
    choices: tuple[str, ...] = (),
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    pattern: str | None = None,
    **extra: object,
) -> Any:  # noqa: ANN401 - the same
    """Return a dataclass field.

    Args:
        default: the default value, or `dict` for an empty mapping; `...` makes the field required.
        text: the description, in complete sentences; `sluicegate run JOB --help` and
            `kubectl explain` show it.
        choices: the allowed values; empty: any.
        above: exclusive minimum.
        at_least: minimum.
        at_most: maximum.
        pattern: a regular expression (RE2) that a string must match.
        extra: what a format needs to know besides, by name.
    """
    limits = {"above": above, "at_least": at_least, "at_most": at_most, "pattern": pattern}
    metadata = {
        "help": text,
        "choices": choices,
        "limits": {name: limit for name, limit in limits.items() if limit is not None},
        **extra,
    }
    if default is ...:
        return dataclasses.field(metadata=metadata)
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def choices_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the allowed values of a field; empty: any value."""
    choices: tuple[str, ...] = field.metadata.get("choices", ())
    return choices


def key_of(name: str) -> str:
    """Return a field's name as files and the command line spell it."""
    return name.replace("_", "-")


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Return whether a field has no default."""
    return field.default is field.default_factory is dataclasses.MISSING


def default_of(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401 - of the field's type
    """Return the default of a field that is not required."""
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


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
