"""Translates Spark's failures into our errors: of a task that raised, of a query that ended or was refused.

A task's exception reaches the driver as text within Spark's own message.
"""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException, StreamingQueryException

from sluicegate import errors
from sluicegate.errors import (
    ExecutorStopping,
    Fenced,
    QueryRefused,
    SluicegateError,
    StageFailed,
)

_RAISED = re.compile(
    rf"^{re.escape(errors.__name__)}\.(\w+): (.+)(?:\n  data: (.+))?(?:\n  do: (.+))?", re.MULTILINE
)
"""The end of a Python traceback with one of our errors; see `SluicegateError.__init__`."""

_OTHER_DRIVER = (
    "[CONCURRENT_STREAM_LOG_UPDATE]",
    "Multiple streaming queries are concurrently using",  # has no error class in Spark 4.1
)
"""Parts of Spark's message when a file of its log that it wants to write exists already."""

_TIME_OUT_OF_RANGE = re.compile(
    r"ArithmeticException: long overflow\n(?:\s+at .*\n)*?\s+at \S+\.KafkaRecordToRowConverter\."
)
"""Spark's Kafka source fails at a record whose time in microseconds exceeds 64 bits."""

_EXECUTOR_STOPS = re.compile(
    r"RejectedExecutionException: Task org\.apache\.spark\.executor\.Executor\$TaskRunner\S* rejected"
)
"""An executor that has got SIGTERM still accepts tasks for a moment, and each of them fails (SPARK-57465)."""

_AFTER_THE_MESSAGE = re.compile(r"=== Streaming Query ===|JVM stacktrace:")
"""What follows has the words of the job's plan, and of errors that have other causes."""


def cause_of(text: str) -> str:
    """Return the line of Spark's message that gives the cause, if possible a Python worker's error."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if "Traceback (most recent" in line), None)
    if start is not None:
        # the stack frames are indented, the exception is not
        raised = (line for line in lines[start + 1 :] if line and not line[0].isspace())
        return next(raised, text).strip()
    # the failure of another thread, whose cause is a later line
    causes = (line for line in lines if "Exception thrown in awaitResult" not in line)
    named = (line for line in causes if "Error" in line or "Exception" in line)
    return next(named, text).strip().removeprefix(": ").removeprefix("Caused by: ")


def raised_in_task(text: str, where: str) -> SluicegateError | None:
    """Return the error of ours that a task raised, None if it raised another.

    `text` is Spark's message; `where` is a prefix for what happened, such as 'epoch 3'.
    """
    found = _RAISED.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, SluicegateError)):
        return None
    return kind(f"{where}: {found[2]}", data=found[3] or "", do=found[4] or "")


def stage_failure(text: str, epoch: int) -> SluicegateError:
    """Return our error for staging tasks that failed; `text` is Spark's message."""
    raised = raised_in_task(text, f"epoch {epoch}")
    if raised is not None:
        return raised
    if _TIME_OUT_OF_RANGE.search(text):
        return StageFailed(
            f"epoch {epoch} could not be staged: Spark cannot read a Kafka record whose timestamp is "
            "later than 9223372036854775 ms since 1970",
            data="the epoch is undecided and nothing of it is visible; nothing is lost, but no restart "
            "with this checkpoint can read past the record",
            do="skip the record: start the job with a new checkpoint, and with startingOffsets after the "
            "record; then lower message.timestamp.after.max.ms of the topic, so that Kafka refuses such "
            "records",
        )
    if _EXECUTOR_STOPS.search(text):
        return ExecutorStopping(
            f"epoch {epoch} could not be staged: its tasks were sent to an executor that is stopping",
            data="the epoch is undecided and nothing of it is visible; its input is read again",
            do="nothing: the epoch is tried again until Spark has noticed the end of that executor; "
            "check why executors stop if this continues",
        )
    return StageFailed(
        f"epoch {epoch} could not be staged: {cause_of(text)[:500]}",
        data="the epoch is undecided and nothing of it is visible; its input is read again",
        do="restart the driver; if it fails again, the cause is in the job or its source",
    )


def translate_failure(error: StreamingQueryException) -> SluicegateError:
    """Return our error for a query that Spark itself ended."""
    text = str(error)
    head, message = _head(text), _AFTER_THE_MESSAGE.split(text, maxsplit=1)[0]
    if any(sign in message for sign in _OTHER_DRIVER):
        return Fenced(
            f"another driver uses this checkpoint: {head}",
            data="this driver wrote nothing in the epoch that the other one runs",
            do="run one driver per checkpoint",
        )
    return StageFailed(
        f"Spark ended the query: {head}",
        data="the epoch is undecided, or decided and applied at the next start; nothing is lost",
        do="restart the driver; if it fails again, the cause is in the job, its source or Spark",
    )


def refused_query(error: AnalysisException, output_mode: str) -> QueryRefused:
    """Return our error for a query whose plan Spark refuses; it would refuse it at every start."""
    return QueryRefused(
        f"Spark refuses the query: {_head(str(error))}",
        data="no epoch was started",
        do=f"change the query, or its output mode, which is {output_mode!r}: `epochs(…, output_mode=…)`",
    )


def _head(text: str) -> str:
    """Return the first line of Spark's message; the plan that follows it may be long."""
    return next((line for line in text.splitlines() if line.strip()), text)[:600]
