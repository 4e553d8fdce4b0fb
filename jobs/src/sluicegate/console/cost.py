"""What the pods of a job cost: their requests, times a price, times how long drivers ran. Pure.

Only what a checkpoint records counts: the requests of the driver's and the executors' containers, from
`starts/`, and the time of a driver until its recorded failure or until the last epoch that is read of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluicegate.console.model import JobFacts
from sluicegate.storage.driver_start import DRIVER_CPU, DRIVER_MEMORY

_HOUR_MS = 3_600_000
_GIB = 1 << 30
_MIB = 1 << 20
_UNITS = {"": 0, "b": 1, "k": 1 << 10, "m": _MIB, "g": _GIB, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"(\d+)\s*([bkmgtp]?)(?:ib?|b)?", re.IGNORECASE)
_CORES = re.compile(r"(\d+(?:\.\d+)?)(m?)")


@dataclass(frozen=True)
class Prices:
    """What a request costs.

    Args:
        core_hour: of a core, for an hour.
        gib_hour: of a GiB of memory, for an hour.
        currency: its name, for people.
    """

    core_hour: float = 0.0
    gib_hour: float = 0.0
    currency: str = "USD"

    def __bool__(self) -> bool:
        return self.core_hour > 0 or self.gib_hour > 0


@dataclass(frozen=True)
class Pods:
    """Pods of a kind, with the requests of each."""

    count: int
    cores: float
    gib: float


@dataclass(frozen=True)
class Cost:
    """What a job costs, in the currency of the prices.

    Args:
        prices: by which it is computed.
        driver: the last driver's pod; None: its requests are not recorded.
        executors: its executors; None: they are not recorded, or their number changes.
        cores: that all pods request.
        gib: of memory that all pods request.
        per_hour: while the driver runs.
        spent: by the drivers whose requests and times are known.
        hours: that those drivers ran.
        counted: how many drivers that are.
        recorded: how many drivers are recorded.
    """

    prices: Prices
    driver: Pods | None
    executors: Pods | None
    cores: float
    gib: float
    per_hour: float | None
    spent: float
    hours: float
    counted: int
    recorded: int


def cost(job: JobFacts, prices: Prices) -> Cost | None:
    """Return what a job costs, None without a price or without a recorded start."""
    if not (prices and job.starts):
        return None
    newest = _pods(job.starts[0].settings)
    cores, gib = _sums(newest)
    spent = hours = 0.0
    counted = 0
    for start, ran_ms in zip(job.starts, _durations_ms(job), strict=True):
        hourly = _per_hour(_pods(start.settings), prices)
        if ran_ms is not None and hourly is not None:
            counted += 1
            hours += ran_ms / _HOUR_MS
            spent += hourly * ran_ms / _HOUR_MS
    hourly = _per_hour(newest, prices)
    return Cost(
        prices, *newest, cores, gib, hourly, spent, hours, counted, recorded=len(job.starts)
    )


def _per_hour(pods: tuple[Pods | None, Pods | None], prices: Prices) -> float | None:
    """Return what pods cost in an hour, None if some are not recorded."""
    if None in pods:
        return None
    cores, gib = _sums(pods)
    return cores * prices.core_hour + gib * prices.gib_hour


def _sums(pods: Sequence[Pods | None]) -> tuple[float, float]:
    known = [each for each in pods if each is not None]
    cores = sum(each.count * each.cores for each in known)
    return cores, sum(each.count * each.gib for each in known)


def _pods(settings: Mapping[str, str]) -> tuple[Pods | None, Pods | None]:
    """Return the pods of the driver and of its executors."""
    cores, size = _cores(settings.get(DRIVER_CPU)), _bytes(settings.get(DRIVER_MEMORY), "m")
    driver = None if cores is None or size is None else Pods(1, cores, size / _GIB)
    return driver, _executors(settings)


def _executors(settings: Mapping[str, str]) -> Pods | None:
    """Return the executors, by the rule of Spark 4.1's `BasicExecutorFeatureStep`."""
    if settings.get("spark.master", "").startswith("local"):
        return Pods(0, 0.0, 0.0)
    if settings.get("spark.dynamicAllocation.enabled") == "true":
        return None
    count = settings.get("spark.executor.instances", "")
    cores = _cores(
        settings.get("spark.kubernetes.executor.request.cores")
        or settings.get("spark.executor.cores")
    )
    sizes = [
        _bytes(settings.get("spark.executor.memory"), "m"),
        _bytes(settings.get("spark.executor.memoryOverhead"), "m"),
        _bytes(settings.get("spark.executor.pyspark.memory", "0"), "m"),
    ]
    if settings.get("spark.memory.offHeap.enabled") == "true":
        sizes.append(_bytes(settings.get("spark.memory.offHeap.size"), "b"))
    known = [size for size in sizes if size is not None]
    if not count.isdecimal() or cores is None or len(known) < len(sizes):
        return None
    return Pods(int(count), cores, sum(known) / _GIB)


def _durations_ms(job: JobFacts) -> list[int | None]:
    """Return how long each recorded driver ran at least, newest first; None if nothing says it."""
    starts = [start.started_at_ms for start in job.starts]
    signs = sorted(
        [epoch.decided_at_ms for epoch in job.epochs]
        + [failure.ended_at_ms for failure in job.failures]
        + [end.ended_at_ms for end in job.ends]
        + [unread.ended_at_ms for unread in job.unread_ends]
    )
    durations: list[int | None] = []
    for start, following in zip(starts, [None, *starts], strict=False):
        end = len(signs) if following is None else bisect_right(signs, following - 1)
        last = signs[end - 1] if end else 0
        durations.append(last - start if last > start else None)
    return durations


def _cores(text: str | None) -> float | None:
    """Return a number of cores such as 2, 0.5 or 1500m."""
    found = _CORES.fullmatch(text or "")
    return float(found[1]) / (1000 if found[2] else 1) if found else None


def _bytes(text: str | None, unit: str) -> int | None:
    """Return a size such as 1434Mi or 2g in bytes; `unit` is that of a number without one."""
    found = _SIZE.fullmatch(text or "")
    return int(found[1]) * _UNITS[found[2].lower() or unit] if found else None
