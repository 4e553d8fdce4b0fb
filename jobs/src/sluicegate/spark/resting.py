"""Whether a query that is running has nothing to do, by what Spark says of it now.

Asked for in the thread that waits for the query's end anyway, as one more call to the JVM. A
StreamingQueryListener was turned down: Spark would call into Python, on the bus that all queries
share, while a query is stopped or the JVM dies; and `lastProgress` knows nothing of a trigger
without data (Spark tells those to listeners only, every ten seconds). Called by `query`.
"""

from __future__ import annotations

from pyspark.sql.streaming.query import StreamingQuery

_RESTING = ("Waiting for next trigger", "Waiting for data to arrive")
"""Spark's words in MicroBatchExecution, 4.1; there are others before the first trigger."""


def rests(query: StreamingQuery) -> bool:
    """Return whether a query waits between two triggers: the last one is done, whatever it found."""
    status = query.status
    return not status["isTriggerActive"] and status["message"] in _RESTING
