"""What ended a driver, left in a file for whoever supervises it: the CLI, or Kubernetes.

An exit code says whether a restart can help; this says why it ended. Kubernetes reads such a file
as a container's termination message. Called by the driver and by `cli.supervisor`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from sluicegate.protocol.errors import SluicegateError

VARIABLE = "SLUICEGATE_OUTCOME"
"""Names the file; where it is not set nothing is written."""


def write(error: SluicegateError) -> None:
    """Leave an error for the supervisor, if there is one. A driver ends by its error in any case."""
    path = os.environ.get(VARIABLE)
    if path:
        said = {
            "kind": type(error).__name__,
            "what": error.what,
            "data": error.data,
            "do": error.do,
        }
        Path(path).write_text(json.dumps(said), encoding="utf-8")


def read(path: Path) -> str:
    """Return what a driver has left, in one line; empty if it had no time to."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return ""
    return f"{said['kind']}: {said['what']}"
