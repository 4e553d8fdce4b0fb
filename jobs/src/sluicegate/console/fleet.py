"""The jobs of the start page, read in the background, so that a page does not wait for a thousand of them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from sluicegate.console.model import JobFacts, Problem
from sluicegate.console.reader import Reader


@dataclass(frozen=True)
class Snapshot:
    """The jobs as they were last read, and what could not be listed.

    Args:
        jobs: those that were read.
        found: how many there are; more than `jobs` while they are read for the first time. None while
            the addresses are listed for the first time.
        problems: of the addresses.
    """

    jobs: tuple[JobFacts, ...] = ()
    found: int | None = None
    problems: tuple[Problem, ...] = ()


class Fleet:
    """Reads all jobs over and over while somebody views them, once for all viewers.

    Args:
        reader: reads the checkpoints.
        max_age_s: a snapshot that is younger is shown as it is; an older one is read again meanwhile.
        wait_s: how long a page waits for that; what is read until then is shown.
    """

    def __init__(self, reader: Reader, max_age_s: float, wait_s: float) -> None:
        self._reader, self._max_age_s, self._wait_s = reader, max_age_s, wait_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._jobs: dict[str, JobFacts] = {}
        self._found: int | None = None
        self._problems: tuple[Problem, ...] = ()
        self._error: Exception | None = None
        self._started = self._completed = 0
        self._completed_at = -float("inf")

    def snapshot(self) -> Snapshot:
        """Return the jobs as of now, or as of the last pass if this one takes too long.

        Raises:
            Exception: the one that ended the last pass. What cannot be read is no exception, but a problem.
        """
        with self._changed:
            if time.monotonic() - self._completed_at >= self._max_age_s:
                if self._thread is None:
                    self._start()
                wanted = self._started
                self._changed.wait_for(lambda: self._completed >= wanted, self._wait_s)
            if self._error is not None:
                raise self._error
            return Snapshot(tuple(self._jobs.values()), self._found, self._problems)

    def _start(self) -> None:
        self._started += 1
        self._thread = threading.Thread(target=self._run, name="console fleet", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self._read()
        except Exception as caught:  # noqa: BLE001 - the page raises it
            error = caught
        finally:
            with self._changed:
                self._thread, self._error = None, error
                self._completed, self._completed_at = self._started, time.monotonic()
                self._changed.notify_all()

    def _read(self) -> None:
        found = self._reader.found()
        known = self._jobs
        with self._changed:
            self._jobs = {key: known[key] for key in found.checkpoints if key in known}
            self._found, self._problems = len(found.checkpoints), found.problems
        for facts in self._reader.briefs(found, known):
            with self._changed:
                self._jobs[facts.key] = facts
