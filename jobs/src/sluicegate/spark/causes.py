"""Finds an error of ours in what Spark says of a task that raised it.

A task's exception reaches the driver as text, within Spark's own. Called by `driver`.
"""

from __future__ import annotations

import re

from sluicegate.protocol import errors
from sluicegate.protocol.errors import SluicegateError

_RAISED = re.compile(
    rf"^{re.escape(errors.__name__)}\.(\w+): (.+)(?:\n  data: (.+))?(?:\n  do: (.+))?", re.MULTILINE
)
"""How Python's traceback ends: see `SluicegateError.__init__`."""


def raised_in_task(said: str, where: str) -> SluicegateError | None:
    """Return the error that a task raised, None if it was none of ours.

    Args:
        said: Spark's text.
        where: put before what happened, such as 'epoch 3'.
    """
    found = _RAISED.search(said)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, SluicegateError)):
        return None
    return kind(f"{where}: {found[2]}", data=found[3] or "", do=found[4] or "")
