"""Since when the oldest input waits that some sink lacks: the lag of a job in seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

Offsets = Mapping[str, Mapping[str, int]]
"""Topic -> partition -> offset."""

_MOST_PLANS = 128


class Source(Protocol):
    """A source as the plan of an epoch sees it."""

    @property
    def number(self) -> int:
        """Identifies the source among those of the query."""

    @property
    def end(self) -> Offsets:
        """The offset after the last record that the epoch reads, of each partition."""

    @property
    def latest(self) -> Offsets:
        """The offset after the last record that existed when the epoch was planned."""


@dataclass(frozen=True)
class _Plan:
    """What existed when an epoch was planned; `latest` is by the number of the source."""

    epoch: int
    at_s: float
    latest: Mapping[int, Offsets]


class OldestInput:
    """Follows which input exists and which of it every sink has; all methods are thread-safe.

    Nobody asks when a record arrived. A plan knows the latest offsets of its time, so a record has
    been waiting since the first plan that saw it, and for up to the time between two plans before
    that. Input that no plan has seen does not count.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: list[_Plan] = []
        self._latest: dict[int, Offsets] = {}
        self._applied: dict[int, Offsets] = {}

    @property
    def since_s(self) -> float | None:
        """Since when it waits, as a Unix time in seconds; None if there is no such input."""
        with self._lock:
            return self._plans[0].at_s if self._plans else None

    def age_s(self) -> float:
        """Return how long it has been waiting, in seconds; 0 if there is no such input."""
        since_s, now_s = self.since_s, time.time()
        return 0.0 if since_s is None else max(0.0, now_s - since_s)

    def planned(self, epoch: int, at_s: float, sources: Iterable[Source]) -> None:
        """Note the plan of an epoch; sources without input for it may be absent."""
        latest = {source.number: source.latest for source in sources}
        with self._lock:
            self._latest |= latest
            self._plans.append(_Plan(epoch, at_s, latest))
            if len(self._plans) > _MOST_PLANS:
                _merge_two(self._plans)

    def applied(self, epoch: int, sources: Iterable[Source]) -> None:
        """Note that every sink has an epoch, with the sources that had input for it."""
        ends = {source.number: source.end for source in sources}
        with self._lock:
            self._applied |= ends
            while self._plans and self._is_done(self._plans[0], epoch):
                del self._plans[0]

    def _is_done(self, plan: _Plan, epoch: int) -> bool:
        """Return whether every sink has all that existed at a plan, given the newest applied epoch."""
        return plan.epoch <= epoch and not any(
            # a topic that was deleted or created again has lost the records that the plan saw
            min(offset, _offset(self._latest, source, topic, partition))
            > _offset(self._applied, source, topic, partition)
            for source, topics in plan.latest.items()
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        )


def _offset(of: Mapping[int, Offsets], source: int, topic: str, partition: str) -> int:
    return of.get(source, {}).get(topic, {}).get(partition, 0)


def _merge_two(plans: list[_Plan]) -> None:
    """Merge the two plans that are closest in time: the time of the first, the offsets of both.

    A long backlog of short epochs thus needs little memory, and its age is at most a few percent too
    high.
    """
    after_s = [later.at_s - earlier.at_s for earlier, later in zip(plans, plans[2:], strict=False)]
    at = after_s.index(min(after_s))
    first, second = plans[at : at + 2]
    both = {**first.latest, **second.latest}
    plans[at : at + 2] = [replace(second, at_s=first.at_s, latest=both)]
