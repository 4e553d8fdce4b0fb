"""Reads objects whose content may be anything: what cannot be parsed is a problem or a note, no exception."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from sluicegate.console.model import Problem
from sluicegate.errors import Fenced, SluicegateError, StoreUnavailable
from sluicegate.protocol.record import EpochRecord, Seal
from sluicegate.storage import driver_end, driver_failure, driver_start
from sluicegate.storage.driver_end import DriverEnd
from sluicegate.storage.driver_failure import DriverFailure
from sluicegate.storage.driver_start import DriverStart
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import EpochReport, read_report
from sluicegate.storage.lineage import Lineage, read_lineage
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

UNREADABLE = (
    SluicegateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,  # deeply nested JSON
    TypeError,
    ValueError,
)
"""What parsers of stored objects raise for content that is not theirs."""

_LATEST_MS = 253_402_300_800_000
"""The end of the year 9999; later times cannot be shown."""

T = TypeVar("T")
Driver = TypeVar("Driver", bound=DriverStart | DriverEnd | DriverFailure)


def guarded(read: Callable[[], T], name: str, problems: list[Problem]) -> T | None:
    """Return what is read, None with a problem if it cannot be parsed.

    Raises:
        StoreUnavailable: the store did not answer; that is no damage.
    """
    try:
        return read()
    except StoreUnavailable:
        raise
    except UNREADABLE as error:
        log.debug("cannot read %s", name, exc_info=True)
        problems.append(problem_of(error, name))
        return None


def problem_of(error: Exception, name: str = "") -> Problem:
    """Return an error in three parts; `name` is that of the object that was read."""
    if isinstance(error, SluicegateError):
        where = f"{name}: " if name else ""
        return Problem(where + error.what, error.data, error.do)
    return Problem(
        f"{name or 'the checkpoint'} is damaged, or was written by another version "
        f"({type(error).__name__})",
        "the console changed nothing; a driver on this checkpoint would stop",
        "restore the object, or use the version of Sluicegate that wrote it",
    )


def lineage_of(store: ObjectStore) -> Lineage | None:
    """Return the lineage of a checkpoint; raises one of UNREADABLE if it is damaged."""
    lineage = read_lineage(store)
    if lineage is not None:
        # JSON without a digest: any field may be of any type
        texts = lineage.id, lineage.job, lineage.parent
        if not (all(isinstance(x, str) for x in texts) and isinstance(lineage.first_epoch, int)):
            raise TypeError("a field of the lineage has another type")
        # raises UnicodeEncodeError for half a surrogate pair, which JSON may contain and no page can
        "".join(texts).encode()
    return lineage


def decision_of(store: ObjectStore, number: int) -> EpochRecord | Seal | None:
    """Return what decides an epoch; raises one of UNREADABLE if it is damaged."""
    decision = StoredEpochLog(store).read_any(number)
    if decision is not None:
        at_ms = decision.sealed_at_ms if isinstance(decision, Seal) else decision.decided_at_ms
        _check_times(f"epochs/{number}", at_ms)
    return decision


def report_of(store: ObjectStore, number: int) -> EpochReport | None:
    """Return the report of an epoch; raises ValueError if it is damaged."""
    report = read_report(store, number)
    steps = report.steps if report else ()
    times_ms = (ms for step in steps for ms in (step.start_ms, step.duration_ms))
    _check_times(f"epochs/{number}.report", *times_ms)
    return report


def driver_of(
    read: Callable[[ObjectStore, str], Driver | None], store: ObjectStore, name: str
) -> Driver | None:
    """Return what an object says about a driver, None if it was deleted meanwhile.

    Args:
        read: reads such an object.
        store: the checkpoint.
        name: of the object.

    Raises:
        ValueError: it is damaged, or has the format of another version.
        StoreUnavailable: the store did not answer.
    """
    found = read(store, name)
    if found is not None:
        at_ms = found.started_at_ms if isinstance(found, DriverStart) else found.ended_at_ms
        _check_times(name, at_ms)
    return found


def _check_times(name: str, *times_ms: float) -> None:
    """Raise ValueError if an object has a time that cannot be shown."""
    if not all(0 <= at_ms < _LATEST_MS for at_ms in times_ms):
        raise ValueError(f"{name} has a time that no clock shows")


def numbers_below(store: ObjectStore, prefix: str) -> list[int]:
    """Return the names below a prefix that are numbers, in order."""
    names = (name.removeprefix(prefix) for name in store.entries(prefix))
    return sorted(int(name) for name in names if name.isdecimal())


def planned_at_ms(store: ObjectStore, epoch: int) -> int:
    """Return when Spark planned an epoch, in ms since 1970; 0 if its offset log does not say it."""
    try:
        metadata = json.loads((store.read(f"offsets/{epoch}") or b"").splitlines()[1])
        planned = int(metadata["batchTimestampMs"])
    # Spark's own format, which may change
    except (LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return 0
    return planned if 0 <= planned < _LATEST_MS else 0


def failed(store: ObjectStore, decided_at_ms: int) -> DriverFailure | None:
    """Return the newest failure after which nothing was decided, and no driver started or ended in order.

    A batch records no start. That of a driver that was fenced does not count: another driver is alive.
    """
    newest = [at for at in numbers_below(store, driver_failure.FOLDER) if at > decided_at_ms]
    others = (driver_start.FOLDER, driver_end.FOLDER) if newest else ()
    started_at_ms = max((at for folder in others for at in numbers_below(store, folder)), default=0)
    for ended_at_ms in reversed(newest):
        if ended_at_ms <= started_at_ms:
            return None
        try:
            name = driver_failure.name_of(ended_at_ms)
            failure = driver_of(driver_failure.read_failure, store, name)
        except ValueError:  # the job's page notes it
            continue
        if failure is not None and failure.kind != Fenced.__name__:
            return failure
    return None


def missing(numbers: Sequence[int]) -> list[Problem]:
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
