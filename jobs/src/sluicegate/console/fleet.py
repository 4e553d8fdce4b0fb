"""The jobs of the start page, read in the background, so that a page does not wait for a thousand of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sluicegate.console.discovery import Found
from sluicegate.console.model import JobFacts, Problem
from sluicegate.console.reader import FIRST, Reader

_OLD_S = 60.0
_PAUSE_S = 2.0
"""How long reading pauses at most while a page is made."""


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
        wait_s: how long a page waits for that; what is read until then is shown. If the last pass took
            longer, it does not wait: an open page learns of what has changed by an event. Jobs that
            nobody viewed for a minute are not shown until they are read again.
    """

    def __init__(self, reader: Reader, max_age_s: float, wait_s: float) -> None:
        self._reader, self._max_age_s, self._wait_s = reader, max_age_s, wait_s
        self._changed = threading.Condition()
        self._undisturbed = threading.Event()
        self._undisturbed.set()
        self._thread: threading.Thread | None = None
        self._jobs: dict[str, JobFacts] = {}
        self._found: Found | None = None
        self._error: Exception | None = None
        self._started = self._completed = 0
        self._completed_at = -float("inf")
        self._took_s = 0.0

    def snapshot(self, max_age_s: float | None = None) -> Snapshot:
        """Return the jobs as of now, or as of the last pass if this one takes too long.

        Args:
            max_age_s: how old they may be, if that differs from the fleet's own.

        Raises:
            Exception: the one that ended the last pass. What cannot be read is no exception, but a problem.
        """
        return self._snapshot(self._max_age_s if max_age_s is None else max_age_s)

    @contextmanager
    def shown(self) -> Iterator[Snapshot]:
        """Yield a snapshot to make a page of, and start to read no further job meanwhile.

        The page would otherwise get a fraction of the interpreter. Raises as `snapshot` does.
        """
        try:
            snapshot = self._snapshot(self._max_age_s, pause=True)
            self._undisturbed.clear()
            yield snapshot
        finally:
            self._undisturbed.set()

    def _snapshot(self, max_age_s: float, *, pause: bool = False) -> Snapshot:
        with self._changed:
            if time.monotonic() - self._completed_at >= max_age_s:
                waits = self._took_s <= self._wait_s or self._is_old
                if pause and not waits:
                    self._undisturbed.clear()
                if self._thread is None:
                    self._start()
                wanted = self._started
                if waits:
                    self._changed.wait_for(lambda: self._completed >= wanted, self._wait_s)
            if self._error is not None:
                raise self._error
            if self._found is None:
                return Snapshot()
            jobs = tuple(self._jobs.values())
            return Snapshot(jobs, len(self._found.checkpoints), self._found.problems)

    @property
    def _is_old(self) -> bool:
        """Whether what is read says nothing about now any more."""
        return time.monotonic() - self._completed_at > _OLD_S

    def _start(self) -> None:
        self._started += 1
        self._thread = threading.Thread(target=self._run, name="console fleet", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error: Exception | None = None
        began = time.monotonic()
        try:
            self._read()
        except Exception as caught:  # noqa: BLE001 - the page raises it
            error = caught
        finally:
            with self._changed:
                self._thread, self._error = None, error
                self._completed, self._completed_at = self._started, time.monotonic()
                self._took_s = self._completed_at - began
                self._changed.notify_all()

    def _read(self) -> None:
        """Read the state of jobs that are new, so that all are soon shown, then what all jobs show."""
        self._wait()
        found, last = self._reader.found(), self._found
        known = {key: self._jobs[key] for key in found.checkpoints if key in self._jobs}
        with self._changed:
            self._jobs, self._found = {} if self._is_old else known, found
        new = {key: at for key, at in found.checkpoints.items() if key not in known}
        if new:
            self._show(
                self._reader.briefs(
                    replace(found, checkpoints=new), {}, epochs=FIRST, wait=self._wait
                )
            )
        known |= self._jobs
        self._show(self._reader.briefs(found, known, same_lineages=found is last, wait=self._wait))

    def _wait(self) -> None:
        self._undisturbed.wait(_PAUSE_S)

    def _show(self, read: Iterable[JobFacts]) -> None:
        for facts in read:
            with self._changed:
                self._jobs[facts.key] = facts
