"""Reads checkpoints for the console. It only lists and reads: no call of it changes a store."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, pairwise
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from cachetools import LRUCache, TTLCache, cached

from sluicegate.console.model import Epoch, JobFacts, Problem
from sluicegate.errors import EpochLogBroken, Fenced, SluicegateError, StoreUnavailable
from sluicegate.protocol.record import EpochRecord, Seal
from sluicegate.savepoints.catalog import read_savepoint
from sluicegate.savepoints.manifest import MANIFEST, TAKING
from sluicegate.storage import driver_failure, driver_start
from sluicegate.storage.driver_failure import DriverFailure
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import EpochReport, read_report
from sluicegate.storage.lineage import Lineage, read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store

log = logging.getLogger(__name__)

EPOCHS = 40
"""Number of newest epochs that are read for the page of a job."""
BRIEF = 12
"""Number of newest epochs that are read of each job for the start page."""

_DEPTH = 5
"""How far below an address checkpoints are searched: a volume has namespaces, jobs and more."""
_FOLDERS = 2_000
"""How many folders below an address are listed at most."""
_REQUESTS = 16
"""How many requests are under way at the same time."""
_BATCH = 64
"""How many jobs are read before the page may show them."""
_FIND_EVERY_S = 15.0
_RETRY_S = 5.0
"""A store that does not answer is a message on the page, and soon."""
_UNREADABLE = (SluicegateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What parsers of stored objects raise for content that is not theirs."""

_LATEST_MS = 253_402_300_800_000
"""The end of the year 9999; later times cannot be shown."""

_CACHED = 2_000
"""How many epochs are remembered."""

T = TypeVar("T")
_Key = tuple[str, str, int]
"""Address, lineage and epoch: another history in the same folder has another lineage."""


@dataclass(frozen=True)
class Found:
    """What is below the addresses: checkpoints by key, savepoints, and what could not be listed."""

    checkpoints: dict[str, str]
    savepoints: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class Reader:
    """Reads the checkpoints below some addresses.

    Records never change, and may be megabytes, so each is read once. Reports change as long as their
    epoch may be replayed, so those of the newest two epochs of a job are read each time.

    Args:
        addresses: of checkpoints, or of folders or prefixes of checkpoints and savepoints.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._pool = ThreadPoolExecutor(_REQUESTS, "console")
        self._decisions: LRUCache[_Key, Epoch | Seal] = LRUCache(_CACHED)
        self._reports: LRUCache[_Key, EpochReport | None] = LRUCache(_CACHED)
        self._found: TTLCache[Any, Found] = TTLCache(1, _FIND_EVERY_S)
        self._lock = Lock()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def found(self) -> Found:
        """Return what is below the addresses, which are listed again every 15 s."""
        return cached(self._found, lock=self._lock)(self._find)()

    def briefs(self, found: Found, known: Mapping[str, JobFacts]) -> Iterator[JobFacts]:
        """Yield the facts of every job with its last few epochs, without the steps of parts.

        Args:
            found: what is below the addresses.
            known: what was read before, by key: what cannot have changed is not read again.
        """
        # not in the pool, whose threads read the epochs of a job: waiting for itself would be a deadlock
        with ThreadPoolExecutor(_REQUESTS, "console jobs") as pool:
            for start in range(0, len(found.checkpoints), _BATCH):
                keys = list(found.checkpoints)[start : start + _BATCH]
                yield from pool.map(
                    lambda key: self._job(key, found.checkpoints[key], known.get(key), BRIEF), keys
                )

    def job(self, key: str) -> JobFacts | None:
        """Return the facts of a job and all savepoints, None if no checkpoint of that key was found.

        A key is never made into an address.
        """
        found = self.found()
        if key not in found.checkpoints:
            return None
        facts = self._with_drivers(self._job(key, found.checkpoints[key]))
        try:
            savepoints = self._pool.map(lambda at: read_savepoint(_open(at)), found.savepoints)
            readable = tuple(
                s for s in savepoints if s.manifest and isinstance(s.manifest.epoch, int)
            )
        except _UNREADABLE as error:
            note = f"savepoints are not shown: {_problem(error, 'one of them').what}"
            return replace(facts, notes=(*facts.notes, note))
        return replace(facts, savepoints=readable)

    def _with_drivers(self, facts: JobFacts) -> JobFacts:
        """Return the facts with how drivers started and failed."""
        notes = list(facts.notes)
        failures = self._newest(facts, driver_failure.FOLDER, driver_failure.read_failure, notes)
        starts = self._newest(facts, driver_start.FOLDER, driver_start.read_start, notes)
        return replace(facts, failures=failures, starts=starts, notes=tuple(notes))

    def _newest(
        self,
        facts: JobFacts,
        folder: str,
        read: Callable[[ObjectStore, str], T | None],
        notes: list[str],
    ) -> tuple[T, ...]:
        """Return what a folder has about drivers, newest first; one that cannot be read is a note."""
        try:
            store = _open(facts.address)
            names = sorted(store.entries(folder), reverse=True)
            found = self._pool.map(partial(read, store), names)
            return tuple(each for each in found if each is not None)
        except (ValueError, SluicegateError) as error:
            notes.append(f"{folder.rstrip('/')} of drivers are not shown: {error}")
            return ()

    def epoch(self, job: JobFacts, number: int) -> Epoch | None:
        """Return any epoch that the log of a job retains, None if it does not.

        Raises:
            SluicegateError: its record cannot be read.
        """
        for epoch in job.epochs:
            if epoch.number == number:
                return epoch
        log = _Log(_open(job.address), job.lineage)
        found = self._read_epochs(log, [number])
        if log.problems:
            first = log.problems[0]
            raise EpochLogBroken(first.what, data=first.data, do=first.do)
        return found[0] if found else None

    def offsets(self, job: JobFacts, epoch: int) -> tuple[bytes | None, bytes | None]:
        """Return Spark's `offsets/N` of an epoch and of the one before, None where there is none."""
        store = _open(job.address)
        return store.read(f"offsets/{epoch - 1}"), store.read(f"offsets/{epoch}")

    def _find(self) -> Found:
        checkpoints: dict[str, str] = {}
        savepoints: list[str] = []
        problems: list[Problem] = []
        for address in self.addresses:
            try:
                for folder, is_savepoint in self._folders(address):
                    if is_savepoint:
                        savepoints.append(_below(address, folder))
                    else:
                        key = _key(address, folder, checkpoints)
                        checkpoints[key] = _below(address, folder)
            except SluicegateError as error:
                problems.append(_problem(error))
        return Found(checkpoints, tuple(savepoints), tuple(problems))

    def _folders(self, address: str) -> Iterator[tuple[str, bool]]:
        """Yield the folders with a checkpoint, and those with a savepoint, below an address."""
        store, level, listed = _open(address), [""], 0
        for _ in range(_DEPTH + 1):
            below: list[str] = []
            listed += len(level)
            entries = self._pool.map(lambda folder: set(store.entries(folder)), level)
            for folder, names in zip(level, entries, strict=True):
                inside = {name.removeprefix(folder) for name in names}
                if inside & {MANIFEST, TAKING}:
                    yield folder, True
                elif inside & {"lineage.json", "epochs/"}:
                    yield folder, False
                else:
                    below += sorted(name for name in names if name.endswith("/"))
            level = below[: max(0, _FOLDERS - listed)]
            if not level:
                break

    def _job(
        self, key: str, address: str, known: JobFacts | None = None, limit: int = EPOCHS
    ) -> JobFacts:
        facts = JobFacts(key, address)
        try:
            return self._facts(facts, _open(address), known, limit)
        except SluicegateError as error:
            return replace(facts, problems=(_problem(error),))

    def _facts(
        self, facts: JobFacts, store: ObjectStore, known: JobFacts | None, limit: int
    ) -> JobFacts:
        problems: list[Problem] = []
        log = _Log(store, _guarded(lambda: _lineage(store), "lineage.json", problems), problems)
        names = {name.removeprefix("epochs/") for name in store.entries("epochs/")}
        numbers = sorted(int(name) for name in names if name.isdecimal())
        before = {}
        if known is not None and known.lineage == log.lineage:
            before = {epoch.number: epoch for epoch in known.epochs}
        seal = self._decision(log, numbers[-1]) if numbers and numbers[-1] not in before else None
        if isinstance(seal, Seal):
            numbers.pop()
        problems += _missing(numbers[-limit:])
        if limit == BRIEF:
            epochs = self._read_brief(log, numbers[-limit:], before)
        else:
            epochs = self._read_epochs(log, numbers[-limit:])
        planned, planned_at_ms = _planned(store)
        decided_at_ms = epochs[-1].decided_at_ms if epochs else 0
        stored = StoredEpochLog(store)
        return replace(
            facts,
            lineage=log.lineage,
            epochs=epochs,
            numbers=tuple(numbers),
            planned=planned,
            planned_at_ms=planned_at_ms,
            committed=frozenset(_numbers(store, "commits/")[-EPOCHS:]),
            marked=frozenset(n for n in numbers if f"{n}.applied" in names),
            discarded={n: stored.discarded(n) for n in numbers if f"{n}.discard/" in names},
            seal=seal if isinstance(seal, Seal) else None,
            problems=tuple({problem.what: problem for problem in problems}.values()),
            notes=tuple(log.notes),
            failed=_failed(store, decided_at_ms),
        )

    def _read_epochs(self, log: _Log, numbers: Sequence[int]) -> tuple[Epoch, ...]:
        """Return those epochs that have a readable record."""
        may_change = frozenset(numbers[-2:])

        def read(number: int) -> Epoch | None:
            epoch = self._decision(log, number)
            if not isinstance(epoch, Epoch):
                return None
            return replace(epoch, report=self._report(log, number, cache=number not in may_change))

        return tuple(epoch for epoch in self._pool.map(read, numbers) if epoch is not None)

    def _read_brief(
        self, log: _Log, numbers: Sequence[int], before: Mapping[int, Epoch]
    ) -> tuple[Epoch, ...]:
        """Return epochs without the steps of parts; those that were read before are taken over."""
        epochs = []
        for number in numbers:
            epoch = before.get(number) or self._decision(log, number)
            if not isinstance(epoch, Epoch):
                continue
            if number not in before or number in numbers[-2:]:  # as in `_read_epochs`
                report = self._report(log, number, cache=False)
                epoch = replace(epoch, report=report and report.without_parts())
            epochs.append(epoch)
        return tuple(epochs)

    def _decision(self, log: _Log, number: int) -> Epoch | Seal | None:
        """Return what decides an epoch, None if nothing or nothing readable does."""
        with self._lock:
            known = self._decisions.get(log.key(number))
        if known is not None:
            return known
        read = partial(StoredEpochLog(log.store).read_any, number)
        stored = _guarded(read, f"epochs/{number}", log.problems)
        decision = Epoch.of(stored) if isinstance(stored, EpochRecord) else stored
        if decision is not None and log.lineage is not None:
            with self._lock:
                self._decisions[log.key(number)] = decision
        return decision

    def _report(self, log: _Log, number: int, *, cache: bool) -> EpochReport | None:
        key = log.key(number)
        with self._lock:
            if cache and key in self._reports:
                return self._reports[key]
        try:
            report = _report(log.store, number)
        except ValueError as error:
            log.notes.append(str(error))
            return None
        if cache and log.lineage is not None:
            with self._lock:
                self._reports[key] = report
        return report


@dataclass(frozen=True)
class _Log:
    """The epoch log of a checkpoint that is being read, and what could not be."""

    store: ObjectStore
    lineage: Lineage | None
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def key(self, epoch: int) -> _Key:
        """Return the key of an epoch in caches."""
        return self.store.url, self.lineage.id if self.lineage else "", epoch


def _open(address: str) -> ObjectStore:
    return open_store(address, retry_timeout_s=_RETRY_S)


def _below(address: str, folder: str) -> str:
    return f"{address.rstrip('/')}/{folder}".rstrip("/") if folder else address


def _key(address: str, folder: str, taken: dict[str, str]) -> str:
    """Return a key that is not taken: the path below the address, or the address's last part."""
    whole = address if "://" in address else str(Path(address).resolve())
    path = folder.rstrip("/") or whole.rstrip("/").rpartition("/")[2] or "checkpoint"
    keys = chain([path], (f"{path}~{number}" for number in count(2)))
    return next(key for key in keys if key not in taken)


def _lineage(store: ObjectStore) -> Lineage | None:
    lineage = read_lineage(store)
    if lineage is not None:
        # JSON without a digest: any field may be of any type
        fields = (lineage.id, str), (lineage.job, str), (lineage.first_epoch, int)
        if not all(isinstance(value, kind) for value, kind in fields):
            raise TypeError("a field of the lineage has another type")
    return lineage


def _report(store: ObjectStore, number: int) -> EpochReport | None:
    report = read_report(store, number)
    steps = report.steps if report else ()
    if not all(0 <= ms < _LATEST_MS for step in steps for ms in (step.start_ms, step.duration_ms)):
        raise ValueError(f"epochs/{number}.report has times that no clock shows")
    return report


def _numbers(store: ObjectStore, prefix: str) -> list[int]:
    names = (name.removeprefix(prefix) for name in store.entries(prefix))
    return sorted(int(name) for name in names if name.isdecimal())


def _planned(store: ObjectStore) -> tuple[int | None, int]:
    """Return the newest epoch of Spark's offset log, and when Spark planned it (0: unknown)."""
    numbers = _numbers(store, "offsets/")
    if not numbers:
        return None, 0
    try:
        metadata = json.loads((store.read(f"offsets/{numbers[-1]}") or b"").splitlines()[1])
        planned_at_ms = int(metadata["batchTimestampMs"])
        return numbers[-1], planned_at_ms if 0 <= planned_at_ms < _LATEST_MS else 0
    except (LookupError, TypeError, ValueError):  # Spark's own format, which may change
        return numbers[-1], 0


def _failed(store: ObjectStore, decided_at_ms: int) -> DriverFailure | None:
    """Return the newest failure after which nothing was decided and no driver started, None if there is none.

    That of a driver that was fenced does not count: another driver is alive.
    """
    newest = [at for at in reversed(_numbers(store, driver_failure.FOLDER)) if at > decided_at_ms]
    started_at_ms = max(_numbers(store, driver_start.FOLDER), default=0) if newest else 0
    for ended_at_ms in newest:
        if ended_at_ms <= started_at_ms:
            return None
        try:
            failure = driver_failure.read_failure(store, driver_failure.name_of(ended_at_ms))
        except ValueError:  # the job's page notes it
            continue
        if failure is not None and failure.kind != Fenced.__name__:
            return failure
    return None


def _missing(numbers: Sequence[int]) -> list[Problem]:
    """Return a problem for each gap in the log: the record before each decision must exist."""
    return [
        Problem(
            f"epochs/{after - 1} is missing, but epochs/{after} exists",
            "the epoch log lost a decision, or the checkpoint was assembled from two",
            "restore `epochs/` of the checkpoint",
        )
        for before, after in pairwise(numbers)
        if after != before + 1
    ]


def _guarded(read: Callable[[], T], name: str, problems: list[Problem]) -> T | None:
    """Return what is read, None with a problem if it cannot be parsed.

    Raises:
        StoreUnavailable: the store did not answer; that is no damage.
    """
    try:
        return read()
    except StoreUnavailable:
        raise
    except _UNREADABLE as error:
        log.debug("cannot read %s", name, exc_info=True)
        problems.append(_problem(error, name))
        return None


def _problem(error: Exception, name: str = "") -> Problem:
    if isinstance(error, SluicegateError):
        where = f"{name}: " if name else ""
        return Problem(where + error.what, error.data, error.do)
    return Problem(
        f"{name} is damaged, or was written by another version ({type(error).__name__})",
        "the console changed nothing; a driver on this checkpoint would stop",
        "restore the object, or use the version of Sluicegate that wrote it",
    )
