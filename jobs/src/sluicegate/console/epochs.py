"""Reads the epochs of a checkpoint: each record once, and a report as long as it may change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock

from cachetools import LRUCache

from sluicegate.console.model import Epoch, Problem
from sluicegate.console.parsing import decision_of, guarded, report_of
from sluicegate.protocol.record import EpochRecord, Seal
from sluicegate.storage.epoch_report import EpochReport
from sluicegate.storage.lineage import Lineage
from sluicegate.storage.object_store import ObjectStore

_CACHED = 2_000
"""How many epochs are remembered for pages of jobs and epochs."""

_Key = tuple[str, str, int]
"""Address, lineage and epoch: another history in the same folder has another lineage."""

ReadAll = Callable[[Callable[[int], Epoch | None], Sequence[int]], Iterable[Epoch | None]]
"""The `map` of a pool of threads."""


@dataclass(frozen=True)
class Log:
    """The epoch log of a checkpoint that is being read, and what could not be.

    Args:
        store: the checkpoint.
        lineage: its lineage, None if it has none that can be read.
        problems: what could not be read and matters for the data.
        notes: what could not be read and is information only.
    """

    store: ObjectStore
    lineage: Lineage | None
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def key(self, epoch: int) -> _Key:
        """Return the key of an epoch in caches."""
        return self.store.url, self.lineage.id if self.lineage else "", epoch

    def decision(self, number: int) -> Epoch | Seal | None:
        """Read what decides an epoch; None if nothing or nothing readable does."""
        read = partial(decision_of, self.store, number)
        stored = guarded(read, f"epochs/{number}", self.problems)
        return Epoch.of(stored) if isinstance(stored, EpochRecord) else stored

    def report(self, number: int) -> EpochReport | None:
        """Read the report of an epoch; None with a note if it cannot be parsed."""
        try:
            return report_of(self.store, number)
        except ValueError as error:
            self.notes.append(str(error))
            return None


class Epochs:
    """Reads epochs, and remembers those whose record and report cannot change."""

    def __init__(self) -> None:
        self._decisions: LRUCache[_Key, Epoch | Seal] = LRUCache(_CACHED)
        self._reports: LRUCache[_Key, EpochReport | None] = LRUCache(_CACHED)
        self._lock = Lock()

    def whole(self, log: Log, numbers: Sequence[int], read_all: ReadAll) -> tuple[Epoch, ...]:
        """Return those epochs that have a readable record, with their reports.

        A report may change as long as its epoch may be replayed, so those of the newest two of `numbers`
        are read each time.
        """
        may_change = frozenset(numbers[-2:])

        def read(number: int) -> Epoch | None:
            epoch = self.decision(log, number)
            if not isinstance(epoch, Epoch):
                return None
            return replace(epoch, report=self._report(log, number, cache=number not in may_change))

        return tuple(epoch for epoch in read_all(read, numbers) if epoch is not None)

    def brief(
        self, log: Log, numbers: Sequence[int], before: Mapping[int, Epoch]
    ) -> tuple[Epoch, ...]:
        """Return those epochs without the steps of parts, as the start page shows them.

        Epochs that were read before are taken over. Of the newest two the report is read again if it is
        missing, or if a later epoch was decided: what a replay wrote is seen then.
        """
        decided = bool(numbers) and numbers[-1] not in before
        epochs: list[Epoch] = []
        for number in numbers:
            known = before.get(number)
            epoch = known or self.decision(log, number, cache=False)
            if not isinstance(epoch, Epoch):
                continue
            newest = number in numbers[-2:]
            if known is None or (newest and (decided or not known.is_reported)):
                report = log.report(number)
                epoch = replace(epoch, report=report and report.without_parts())
            if epochs and epoch.sinks == epochs[-1].sinks:
                epoch = replace(epoch, sinks=epochs[-1].sinks)  # one copy for all in memory
            epochs.append(known if known == epoch and known is not None else epoch)
        return tuple(epochs)

    def decision(self, log: Log, number: int, *, cache: bool = True) -> Epoch | Seal | None:
        """Return what decides an epoch, None if nothing or nothing readable does.

        Args:
            log: of the checkpoint.
            number: of the epoch.
            cache: remember it.
        """
        with self._lock:
            known = self._decisions.get(log.key(number))
        if known is not None:
            return known
        decision = log.decision(number)
        if cache and decision is not None and log.lineage is not None:
            with self._lock:
                self._decisions[log.key(number)] = decision
        return decision

    def _report(self, log: Log, number: int, *, cache: bool) -> EpochReport | None:
        key = log.key(number)
        with self._lock:
            if cache and key in self._reports:
                return self._reports[key]
        notes = len(log.notes)
        report = log.report(number)
        if cache and log.lineage is not None and len(log.notes) == notes:
            with self._lock:
                self._reports[key] = report
        return report
