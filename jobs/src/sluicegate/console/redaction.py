"""What pages leave out: users and passwords of URLs, and values that are named like a secret. Pure."""

from __future__ import annotations

import re
from typing import Any

from sluicegate.storage.driver_start import HIDDEN, SECRET_WORDS

_USER_INFO = re.compile(r"(?<=://)[^/\s]*@")
_NAMED = re.compile(
    rf"""((?:{SECRET_WORDS})[\w.-]{{0,40}}\\*["']?\s*[:=]\s*)"""
    r"""(\\+"[^"]*"?|"(?:[^"\\]|\\.)*"?|'[^']*'?|(?:(?:Bearer|Basic)\s+)?[^\s,;&}]+)""",
    re.IGNORECASE,
)
"""A name, and its value in JSON, in JSON in a text, or in `name=value`; the value may be cut."""


def without_user_info(value: Any) -> Any:  # noqa: ANN401 - jinja2 passes each value through this
    """Return a value for a page, without the user and password of any URL in it."""
    return type(value)(_USER_INFO.sub("", value)) if isinstance(value, str) else value


def without_secrets(row: str) -> str:
    """Return a row of a job's data without what is recognizably a secret."""
    return _NAMED.sub(rf"\1{HIDDEN}", _USER_INFO.sub("", row))
