"""Whether this process was asked to end, and whether a query runs that can end it well.

While one runs it ends at its epoch's end (`query` looks here); before and after, the process ends
at once, which is as harmless as being killed. Nothing here waits or locks: a signal's handler calls
it in the middle of anything. Called by `sluicegate.pod`, `query` and `batch`.
"""

from __future__ import annotations


class Ended(SystemExit):
    """Ends the process with exit code 0: it was asked to end, or has nothing more to do."""

    def __init__(self) -> None:
        super().__init__(0)


class _State:
    """Of this process."""

    asked = False
    running: set[int] = set()  # noqa: RUF012 - there is one process


def ask() -> None:
    """End this process, at the epoch's end where a query runs.

    Raises:
        Ended: no query runs.
    """
    _State.asked = True
    if not _State.running:
        raise Ended


def asked() -> bool:
    """Return whether `ask` was called."""
    return _State.asked


def enter(query: object) -> None:
    """Say that a query is about to run.

    Raises:
        Ended: the process was asked to end; the query must not be started.
    """
    # noted first, asked then: a signal in between is seen by whoever waits for the query
    _State.running.add(id(query))
    if _State.asked:
        leave(query)
        raise Ended


def leave(query: object) -> None:
    """Say that a query has ended; may be said twice."""
    _State.running.discard(id(query))


def forget() -> None:
    """Begin anew, as a new process does; for tests."""
    _State.asked = False
    _State.running.clear()
