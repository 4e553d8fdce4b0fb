"""Reads checkpoints for the console. It only lists and reads: no call of it changes a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

from cachetools import LRUCache, TTLCache, cached

from sluicegate.console.attempts import decided_after_starts, thrown_away
from sluicegate.console.discovery import Found, find
from sluicegate.console.epochs import Epochs, Log
from sluicegate.console.model import Epoch, JobFacts, Problem, UnreadEnd
from sluicegate.console.parsing import (
    UNREADABLE,
    Driver,
    driver_of,
    failed,
    guarded,
    lineage_of,
    missing,
    numbers_below,
    planned_at_ms,
    problem_of,
)
from sluicegate.console.stores import Stores
from sluicegate.errors import EpochLogBroken, SluicegateError
from sluicegate.protocol.record import Seal
from sluicegate.savepoints.catalog import read_savepoint
from sluicegate.storage import driver_end, driver_failure, driver_start
from sluicegate.storage.driver_start import DriverStart
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import ObjectStore

EPOCHS = 40
"""Number of newest epochs that are read for the page of a job."""
BRIEF = 12
"""Number of newest epochs that are read of each job for the start page."""
FIRST = 2
"""Number of newest epochs that say the state of a job, which is read first."""

_REQUESTS = 16
"""How many requests are under way at the same time."""
_BATCH = 64
"""How many jobs are read before the page may show them."""
_FIND_EVERY_S = 15.0
_STARTS = 2_000
"""How many starts of drivers are remembered, one of each checkpoint, to find that of a StreamingJob, and
when Spark planned how many epochs."""


class Reader:
    """Reads the checkpoints below some addresses.

    Records never change, and may be megabytes, so each is read once.

    Args:
        addresses: of checkpoints, or of folders or prefixes of checkpoints and savepoints.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._stores = Stores(self.addresses)
        self._pool = ThreadPoolExecutor(_REQUESTS, "console")
        self._epochs = Epochs()
        self._found: TTLCache[Any, Found] = TTLCache(1, _FIND_EVERY_S)
        self._starts: LRUCache[tuple[str, str], DriverStart] = LRUCache(_STARTS)
        self._planned: LRUCache[tuple[str, str, int], int] = LRUCache(_STARTS)
        self._lock = Lock()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def found(self) -> Found:
        """Return what is below the addresses, which are listed again every 15 s."""
        return cached(self._found, lock=self._lock)(lambda: find(self._stores, self._pool.map))()

    def briefs(
        self,
        found: Found,
        known: Mapping[str, JobFacts],
        *,
        epochs: int = BRIEF,
        same_lineages: bool = False,
        wait: Callable[[], object] = lambda: None,
    ) -> Iterator[JobFacts]:
        """Yield the facts of every job with its last few epochs, as far as the start page shows them.

        A job that has not changed is yielded as the same object. Of a job without news three folders are
        listed, and its lineage is read unless `same_lineages`.

        Args:
            found: what is below the addresses.
            known: what was read before, by key: what cannot have changed is not read again.
            epochs: how many.
            same_lineages: the lineages in `known` are recent enough.
            wait: called before each job; it may wait for what is more urgent.
        """

        def brief(key: str) -> JobFacts:
            wait()
            last = known.get(key)
            facts = JobFacts(key, found.checkpoints[key])
            try:
                facts = self._brief(facts, last, epochs, same_lineage=same_lineages)
            except UNREADABLE as error:
                facts = replace(facts, problems=(problem_of(error),))
            return last if last is not None and facts == last else facts

        # not in the pool, whose threads read the epochs of a job: waiting for itself would be a deadlock
        with ThreadPoolExecutor(_REQUESTS, "console jobs") as pool:
            for start in range(0, len(found.checkpoints), _BATCH):
                yield from pool.map(brief, list(found.checkpoints)[start : start + _BATCH])

    def job(self, key: str) -> JobFacts | None:
        """Return the facts of a job and all savepoints, None if no checkpoint of that key was found.

        A key is never made into an address.
        """
        found = self.found()
        if key not in found.checkpoints:
            return None
        facts = JobFacts(key, found.checkpoints[key])
        try:
            facts = self._whole(facts)
        except UNREADABLE as error:
            facts = replace(facts, problems=(problem_of(error),))
        facts = self._with_drivers(facts)
        try:
            savepoints = self._pool.map(
                lambda at: read_savepoint(self._stores.open(at)), found.savepoints
            )
            readable = tuple(
                s for s in savepoints if s.manifest and isinstance(s.manifest.epoch, int)
            )
        except UNREADABLE as error:
            note = f"savepoints are not shown: {problem_of(error, 'one of them').what}"
            return replace(facts, notes=(*facts.notes, note))
        return replace(facts, savepoints=readable)

    def checkpoint_of(self, streaming_job: str) -> str | None:
        """Return the key of the checkpoint in which a driver of a StreamingJob started last.

        Its upgrades may have left others. Each checkpoint's folder of starts is listed; a start that was
        read before is not read again.

        Args:
            streaming_job: namespace/name.

        Returns:
            None if no driver has recorded that it runs this job, as that of a batch does not.
        """
        found = self.found().checkpoints
        starts = self._pool.map(self._last_start, found.values())
        times = {
            key: start.started_at_ms
            for key, start in zip(found, starts, strict=True)
            if start is not None and start.settings.get(driver_start.JOB) == streaming_job
        }
        return max(times, key=lambda key: times[key], default=None)

    def epoch(self, job: JobFacts, number: int) -> Epoch | None:
        """Return any epoch that the log of a job retains, None if it does not.

        Raises:
            SluicegateError: its record cannot be read.
        """
        for epoch in job.epochs:
            if epoch.number == number:
                return epoch
        log = Log(self._stores.open(job.address), job.lineage)
        found = self._epochs.whole(log, [number], map)
        if log.problems:
            first = log.problems[0]
            raise EpochLogBroken(first.what, data=first.data, do=first.do)
        return found[0] if found else None

    def offsets(self, job: JobFacts, epoch: int) -> tuple[bytes | None, bytes | None]:
        """Return Spark's `offsets/N` of an epoch and of the one before, None where there is none."""
        store = self._stores.open(job.address)
        return store.read(f"offsets/{epoch - 1}"), store.read(f"offsets/{epoch}")

    def _last_start(self, address: str) -> DriverStart | None:
        store = self._stores.open(address)
        name = max(store.entries(driver_start.FOLDER), default=None)
        if name is None:
            return None
        with self._lock:
            known = self._starts.get((address, name))
        try:
            start = known or driver_of(driver_start.read_start, store, name)
        except ValueError:  # the job's page notes it
            return None
        if start is not None:
            with self._lock:
                self._starts[address, name] = start
        return start

    def _brief(
        self, facts: JobFacts, known: JobFacts | None, limit: int, *, same_lineage: bool
    ) -> JobFacts:
        store = self._stores.open(facts.address)
        if same_lineage and known is not None and known.lineage is not None:
            log = Log(store, known.lineage)
        else:
            log = _opened(store)
        if known is not None and known.lineage != log.lineage:
            known = None
        before = {epoch.number: epoch for epoch in known.epochs} if known else {}
        names, numbers, seal = self._decided(log, before)
        epochs = self._epochs.brief(log, numbers[-limit:], before)
        marked = _marked(names, numbers)
        newest = epochs[-1] if epochs else None
        # what proves that every sink has the newest epoch; nothing else on the page needs commits
        is_proven = newest is None or newest.is_reported or newest.number in marked
        planned = max(numbers_below(store, "offsets/"), default=None)
        if known is not None and planned == known.planned and known.planned_at_ms:
            at_ms = known.planned_at_ms
        else:
            at_ms = 0 if planned is None else planned_at_ms(store, planned)
        return replace(
            facts,
            lineage=log.lineage,
            epochs=epochs,
            planned=planned,
            planned_at_ms=at_ms,
            committed=frozenset() if is_proven else _committed(store),
            marked=marked & {epoch.number for epoch in epochs},
            seal=seal,
            problems=_problems(log, numbers[-limit:]),
            notes=tuple(log.notes),
            failed=failed(store, newest.decided_at_ms if newest else 0),
        )

    def _whole(self, facts: JobFacts) -> JobFacts:
        store = self._stores.open(facts.address)
        log = _opened(store)
        names, numbers, seal = self._decided(log, {})
        epochs = self._epochs.whole(log, numbers[-EPOCHS:], self._pool.map)
        planned = max(numbers_below(store, "offsets/"), default=None)
        stored = StoredEpochLog(store)
        return replace(
            facts,
            lineage=log.lineage,
            epochs=epochs,
            numbers=tuple(numbers),
            planned=planned,
            planned_at_ms=0 if planned is None else planned_at_ms(store, planned),
            committed=_committed(store),
            marked=_marked(names, numbers),
            discarded={n: stored.discarded(n) for n in numbers if f"{n}.discard/" in names},
            seal=seal,
            problems=_problems(log, numbers[-EPOCHS:]),
            notes=tuple(log.notes),
            failed=failed(store, epochs[-1].decided_at_ms if epochs else 0),
        )

    def _decided(
        self, log: Log, before: Mapping[int, Epoch]
    ) -> tuple[set[str], list[int], Seal | None]:
        """Return what `epochs/` has, the decided epochs in order, and the seal after them.

        Args:
            log: of the checkpoint.
            before: epochs that were read before, which are no seals.
        """
        names = {name.removeprefix("epochs/") for name in log.store.entries("epochs/")}
        numbers = sorted(int(name) for name in names if name.isdecimal())
        if not numbers or numbers[-1] in before:
            return names, numbers, None
        seal = self._epochs.decision(log, numbers[-1])
        if isinstance(seal, Seal):
            return names, numbers[:-1], seal
        return names, numbers, None

    def _with_drivers(self, facts: JobFacts) -> JobFacts:
        """Return the facts with how drivers started and failed."""
        notes = list(facts.notes)
        failures, no_failures = self._newest(
            facts, driver_failure.FOLDER, driver_failure.read_failure, notes
        )
        ends, no_ends = self._newest(facts, driver_end.FOLDER, driver_end.read_end, notes)
        starts, _ = self._newest(facts, driver_start.FOLDER, driver_start.read_start, notes)
        unread = [UnreadEnd(at_ms, failed=True) for at_ms in no_failures]
        unread += [UnreadEnd(at_ms, failed=False) for at_ms in no_ends]
        facts = replace(
            facts,
            failures=failures,
            ends=ends,
            starts=starts,
            unread_ends=tuple(unread),
            notes=tuple(notes),
        )
        return replace(facts, thrown_away=self._thrown_away(facts))

    def _thrown_away(self, facts: JobFacts) -> dict[int, int]:
        """Return the numbers of attempts that were thrown away, for which a few entries of a log are read."""
        started_ms = [start.started_at_ms for start in facts.starts]
        planned_ms = {
            number: self._planned_at_ms(facts, number)
            for number in decided_after_starts(facts.epochs, started_ms)
        }
        if facts.planned is not None:
            planned_ms[facts.planned] = facts.planned_at_ms
        return thrown_away(facts.epochs, planned_ms, started_ms)

    def _planned_at_ms(self, facts: JobFacts, number: int) -> int:
        """Return when Spark fixed the input of an epoch, which never changes; 0 if that is unknown."""
        key = facts.address, facts.lineage.id if facts.lineage else "", number
        with self._lock:
            known = self._planned.get(key)
        if known is None:
            try:
                known = planned_at_ms(self._stores.open(facts.address), number)
            except SluicegateError:  # the facts themselves could be read, and say more than this
                return 0
            with self._lock:
                self._planned[key] = known
        return known

    def _newest(
        self,
        facts: JobFacts,
        folder: str,
        read: Callable[[ObjectStore, str], Driver | None],
        notes: list[str],
    ) -> tuple[tuple[Driver, ...], list[int]]:
        """Return what a folder has about drivers, newest first, and the times of what cannot be read.

        A time is the name of its object. What cannot be read is a note.
        """
        kind = folder.rstrip("/")
        try:
            store = self._stores.open(facts.address)
            names = sorted(store.entries(folder), reverse=True)
        except SluicegateError as error:
            notes.append(f"{kind} of drivers are not shown: {error}")
            return (), []
        errors: dict[str, Exception] = {}

        def read_one(name: str) -> Driver | None:
            try:
                return driver_of(read, store, name)
            except (ValueError, SluicegateError) as error:
                errors[name] = error
                return None

        found = tuple(each for each in self._pool.map(read_one, names) if each is not None)
        unread = sorted(errors, reverse=True)
        if unread:
            count = f"{len(unread)} of {len(names)} {kind} of drivers cannot be read"
            notes.append(f"{count}; the newest of them: {errors[unread[0]]}")
        times = (name.removeprefix(folder) for name in unread)
        return found, [int(time) for time in times if time.isdecimal()]


def _opened(store: ObjectStore) -> Log:
    """Return the log of a checkpoint, with a problem if its lineage cannot be read."""
    log = Log(store, None)
    return replace(log, lineage=guarded(lambda: lineage_of(store), "lineage.json", log.problems))


def _marked(names: set[str], numbers: Sequence[int]) -> frozenset[int]:
    return frozenset(number for number in numbers if f"{number}.applied" in names)


def _committed(store: ObjectStore) -> frozenset[int]:
    return frozenset(numbers_below(store, "commits/")[-EPOCHS:])


def _problems(log: Log, numbers: Sequence[int]) -> tuple[Problem, ...]:
    """Return each problem once, with those of gaps between some decided epochs."""
    problems = (*log.problems, *missing(numbers))
    return tuple({problem.what: problem for problem in problems}.values())
