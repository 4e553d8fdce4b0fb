"""Says in our terms what Spark says of a failure: of a task that raised an error, of a query that ended.

A task's exception reaches the driver as text, within Spark's own. Called by `driver` and `query`.
"""

from __future__ import annotations

import re

from pyspark.errors import StreamingQueryException

from sluicegate.protocol import errors
from sluicegate.protocol.errors import Fenced, SluicegateError, StageFailed

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


_ANOTHER_DRIVER = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "ConcurrentModification",
    "Multiple streaming queries are concurrently using",  # has no error class in Spark 4.1
)
"""What Spark says when a file of its log that it is about to write is there already."""


def translated(error: StreamingQueryException) -> SluicegateError:
    """Say in our terms why Spark itself ended the query."""
    text = str(error)
    head = next((line for line in text.splitlines() if line.strip()), text)[:600]
    if any(sign in text for sign in _ANOTHER_DRIVER):
        return Fenced(
            f"another driver uses this checkpoint: {head}",
            data="nothing was written by this driver in the epoch that it lost",
            do="keep one driver per checkpoint",
        )
    return StageFailed(
        f"Spark ended the query: {head}",
        data="the epoch is undecided, or decided and applied at the next start; nothing is lost",
        do="restart the driver; if it fails again, the cause is in the job, its source or Spark",
    )
