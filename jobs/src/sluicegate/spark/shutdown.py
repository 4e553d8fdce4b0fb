"""The shutdown flag of this process, and the queries that can stop in response to it.

A running query stops at the end of its epoch; before and after a query the process exits at once,
which is as harmless as being killed. Nothing here waits or locks, because a signal handler calls it
at any point. A module of its own, so that the handler is installed before Spark is imported.
"""

from __future__ import annotations


class Ended(SystemExit):
    """Ends the process with exit code 0: it was requested, or nothing is left to do."""

    def __init__(self) -> None:
        super().__init__(0)


class _State:
    """Of this process."""

    requested = stopped = False
    queries: set[int] = set()  # noqa: RUF012 - there is one process


def request() -> None:
    """Request the end of this process, at the end of the epoch if a query runs.

    Raises:
        Ended: no query runs.
    """
    _State.requested = True
    if not _State.queries:
        raise Ended


def requested() -> bool:
    """Return whether `request` was called."""
    return _State.requested


def query_stopped() -> None:
    """Note that a query was stopped by a request, before it had nothing left to read."""
    _State.stopped = True


def stopped() -> bool:
    """Return whether the end of this process was requested, or the stop of its query."""
    return _State.requested or _State.stopped


def register(query: object) -> None:
    """Announce a query that is about to start.

    Raises:
        Ended: the end was requested; the query must not start.
    """
    # added before the check, so that the query sees a signal that arrives in between
    _State.queries.add(id(query))
    _State.stopped = False
    if _State.requested:
        unregister(query)
        raise Ended


def unregister(query: object) -> None:
    """Announce that a query has ended; may be called twice."""
    _State.queries.discard(id(query))


def reset() -> None:
    """Return to the state of a new process, for tests."""
    _State.requested = _State.stopped = False
    _State.queries.clear()
