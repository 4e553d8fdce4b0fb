"""The reason why a driver ended, in a file for its supervisor: `sluicegate run` or Kubernetes.

The exit code says whether a restart can help; the file says why the driver ended. Kubernetes uses
such a file as the termination message of the container.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from sluicegate.deployment.environment import DriverVariable
from sluicegate.errors import SluicegateError

log = logging.getLogger("sluicegate.termination")

STOPPED = "Stopped"
"""Name of the reason of a driver that ended in order because that was requested, not because it was done."""

_MAX_BYTES = 4000
"""Kubernetes truncates a termination message at 4096 bytes, which would leave invalid JSON."""


@dataclass(frozen=True)
class Reason:
    """Why a driver ended: the name of an error and its three parts."""

    kind: str
    what: str
    data: str = ""
    do: str = ""

    def __str__(self) -> str:
        """Return the name and what happened, in one line."""
        return f"{self.kind}: {self.what}".strip()


def write(error: SluicegateError) -> None:
    """Write an error for the supervisor, if there is one. Never hides the error itself."""
    write_message(type(error).__name__, error.what, data=error.data, do=error.do)


def write_message(kind: str, what: str, *, data: str = "", do: str = "") -> None:
    """Write the name of an error and its three parts; long ones are truncated.

    A file that cannot be written is only logged, because the exit code matters more.
    """
    path = os.environ.get(DriverVariable.TERMINATION_FILE)
    if not path:
        return
    try:
        Path(path).write_text(_truncated(kind, [what, data, do]), encoding="utf-8")
    except OSError as error:
        log.error("cannot write %s, so the supervisor does not learn the reason: %s", path, error)


def written() -> bool:
    """Return whether this driver has written a reason, or has no file to write it to."""
    path = os.environ.get(DriverVariable.TERMINATION_FILE)
    if not path:
        return True
    try:
        return Path(path).stat().st_size > 0
    except OSError:
        return False


def read(path: Path) -> Reason | None:
    """Return the reason in a file, None if the driver wrote none."""
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def parse(message: str) -> str:
    """Return the reason in a termination message, in one line; empty if a driver did not write it."""
    return str(_parsed(message) or "")


def _parsed(message: str) -> Reason | None:
    try:
        reason = json.loads(message)
    except (ValueError, RecursionError):
        return None  # anything may be written to the file, also text that nests too deep to parse
    if not isinstance(reason, dict) or "kind" not in reason:
        return None
    return Reason(**{part: str(reason.get(part, "")) for part in ("kind", "what", "data", "do")})


def _truncated(kind: str, parts: list[str]) -> str:
    """Return the JSON text, with parts short enough for a termination message."""
    length = _MAX_BYTES
    while True:
        what, data, do = (part if len(part) <= length else f"{part[:length]}…" for part in parts)
        text = json.dumps({"kind": kind, "what": what, "data": data, "do": do})
        if len(text) <= _MAX_BYTES or length <= 1:
            return text
        length //= 2
