"""What ended a driver, left in a file for whoever supervises it: the CLI, or Kubernetes.

An exit code says whether a restart can help; this says why it ended. Kubernetes reads such a file
as a container's termination message. Called by the driver and by `cli.supervisor`.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from sluicegate.protocol.errors import SluicegateError

log = logging.getLogger("sluicegate.outcome")

VARIABLE = "SLUICEGATE_OUTCOME"
"""Names the file; where it is not set nothing is written."""

_MOST_BYTES = 4000
"""Kubernetes cuts a termination message at 4096, and what is left would be no JSON."""


def write(error: SluicegateError) -> None:
    """Leave an error for the supervisor, if there is one. A driver ends by its error in any case."""
    write_said(type(error).__name__, error.what, data=error.data, do=error.do)


def write_said(kind: str, what: str, *, data: str = "", do: str = "") -> None:
    """Leave what happened, by one word and up to three sentences; long ones are cut.

    A file that cannot be written is logged: the exit code says what matters more.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        Path(path).write_text(_fitting(kind, [what, data, do]), encoding="utf-8")
    except OSError as error:
        log.error("%s cannot be written, so the supervisor is not told why: %s", path, error)


def written() -> bool:
    """Return whether this driver has left something, or nobody wants it to."""
    path = os.environ.get(VARIABLE)
    if not path:
        return True
    try:
        return Path(path).stat().st_size > 0
    except OSError:
        return False


def read(path: Path) -> str:
    """Return what a driver has left, in one line; empty if it had no time to."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return ""
    return f"{said['kind']}: {said['what']}"


def _fitting(kind: str, sentences: list[str]) -> str:
    """Return the JSON text, cut to what a termination message may hold."""
    most = _MOST_BYTES
    while True:
        what, data, do = (one if len(one) <= most else f"{one[:most]}…" for one in sentences)
        text = json.dumps({"kind": kind, "what": what, "data": data, "do": do})
        if len(text) <= _MOST_BYTES or most <= 1:
            return text
        most //= 2
