"""The report of an applied epoch, `epochs/N.report`: when each step ran and how long, for people.

It is information only. No decision of the protocol reads it, so a missing, damaged or outdated
report harms nothing. It is overwritten by each driver that applies the epoch: a replay writes it
again, and of two drivers that are alive at once the later one wins. It is not `epochs/N.applied`,
which the protocol does read.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from sluicegate.errors import StoreUnavailable
from sluicegate.protocol.record import DEAD_LETTERS, ROWS_IN, DecidedEpoch
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger("sluicegate.epoch")

Parsed = TypeVar("Parsed")

APPLY = "apply"
"""The step in which a sink applies its parts; a step that failed and was repeated is there twice."""

SOURCE, OFFSET_LOG, PLANNING = "source", "offset log", "planning"
"""What Spark does before it hands an epoch over: it asks the sources for new input, writes `offsets/N`,
and plans the query."""

STATE = "state"
"""The part of the stage in which state stores commit, estimated from the sum over all tasks."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step of an epoch.

    Args:
        name: SOURCE, OFFSET_LOG, PLANNING, 'stage', STATE (within the stage), 'decide', 'apply', or a
            step of a part's writer: see `sinks.contract.Step`.
        start_ms: ms since 1970, by the clock of the machine that ran it.
        duration_ms: how long it took.
        sink: the sink's id; empty for the steps before the apply.
        part: the part of the sink, None for a step of the whole sink.
    """

    name: str
    start_ms: float
    duration_ms: float
    sink: str = ""
    part: int | None = None

    @classmethod
    def of_ns(
        cls, name: str, start_ns: int, end_ns: int, sink: str = "", part: int | None = None
    ) -> TimedStep:
        """Return a step between two times in ns since 1970."""
        return cls(name, round(start_ns / 1e6, 3), round((end_ns - start_ns) / 1e6, 3), sink, part)


def writer_steps(steps: Iterable[TimedStep]) -> dict[tuple[str, str], float]:
    """Return the ms of each step of each sink's writers, by sink and step.

    Parts run at the same time, so that the longest part of a step counts. A step that a part repeated
    counts with all its tries.
    """
    of_parts: dict[tuple[str, str, int], float] = defaultdict(float)
    for step in steps:
        if step.part is not None:
            of_parts[step.sink, step.name, step.part] += step.duration_ms
    longest: dict[tuple[str, str], float] = defaultdict(float)
    for (sink, name, _), ms in of_parts.items():
        longest[sink, name] = max(ms, longest[sink, name])
    return dict(longest)


@dataclass(frozen=True)
class SinkReport:
    """The decided rows of a sink, and the number of its applies; 0 if the epoch has no rows for it."""

    rows: int
    tries: int


@dataclass(frozen=True)
class EpochReport:
    """How an epoch was applied.

    Args:
        epoch: its number.
        lineage: the id of the checkpoint's history.
        attempt: the attempt that was decided.
        replayed: an earlier driver or run had decided it; its stage and decision are not in `steps`.
        rows_in: rows that the sources delivered, None if that was not counted.
        dead_letters: number by kind.
        sinks: by id, in the order in which they are applied.
        steps: in the order in which they ended.
        thrown_away: attempts of this driver at the epoch that failed before the one that was decided.
        waits_since_ms: since when input waits that some sink lacked after this epoch, in ms since
            1970 (`oldest_input`); 0: the driver had seen no such input.
    """

    epoch: int
    lineage: str
    attempt: str
    replayed: bool
    rows_in: int | None = None
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    sinks: Mapping[str, SinkReport] = field(default_factory=dict)
    steps: tuple[TimedStep, ...] = ()
    thrown_away: int = 0
    waits_since_ms: float = 0.0

    @classmethod
    def of(
        cls,
        decided: DecidedEpoch,
        steps: tuple[TimedStep, ...],
        *,
        thrown_away: int = 0,
        waits_since_s: float | None = None,
    ) -> EpochReport:
        """Return the report of an epoch that every sink has."""
        record = decided.record
        tries = Counter(step.sink for step in steps if step.name == APPLY)
        return cls(
            epoch=record.epoch,
            lineage=record.lineage,
            attempt=record.attempt,
            replayed=decided.replayed,
            rows_in=record.counts.get(ROWS_IN),
            dead_letters={
                name.removeprefix(DEAD_LETTERS): number
                for name, number in record.counts.items()
                if name.startswith(DEAD_LETTERS)
            },
            sinks={sink: SinkReport(record.rows(sink), tries[sink]) for sink in record.sinks},
            steps=steps,
            thrown_away=thrown_away,
            waits_since_ms=round((waits_since_s or 0.0) * 1000, 3),
        )

    def without_parts(self) -> EpochReport:
        """Return the report without the steps of parts, which are most of it."""
        return replace(self, steps=tuple(step for step in self.steps if step.part is None))

    def as_json(self) -> str:
        """Return the report as a JSON object in one line."""
        return json.dumps(asdict(self), separators=(",", ":"))


def write_report(checkpoint: ObjectStore, report: EpochReport) -> None:
    """Write or replace the report of an epoch; a failure is logged and changes nothing."""
    try:
        checkpoint.put(_name(report.epoch), [report.as_json().encode()])
    except StoreUnavailable as error:
        log.warning(
            "the report of epoch %d was not written; the epoch is in every sink, and only the times "
            "of its steps are missing: %s",
            report.epoch,
            error.what,
        )


def read_report(checkpoint: ObjectStore, epoch: int) -> EpochReport | None:
    """Return the report of an epoch, None if it has none.

    Raises:
        ValueError: the object is damaged, or has the format of another version.
        StoreUnavailable: the store did not answer.
    """
    return read_parsed(checkpoint, _name(epoch), _parsed)


def read_parsed(
    checkpoint: ObjectStore, name: str, parse: Callable[[Mapping[str, Any]], Parsed]
) -> Parsed | None:
    """Return a JSON object of a checkpoint that no decision reads, None if there is none.

    Args:
        checkpoint: the checkpoint.
        name: of the object.
        parse: returns what its fields mean.

    Raises:
        ValueError: the object is damaged, or has the format of another version.
        StoreUnavailable: the store did not answer.
    """
    stored = checkpoint.read(name)
    if stored is None:
        return None
    try:
        return parse(json.loads(stored))
    except (
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,  # deeply nested JSON
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"{name} is damaged or of another version: {error!r}") from error


def _name(epoch: int) -> str:
    return f"epochs/{epoch}.report"


def _parsed(stored: Mapping[str, Any]) -> EpochReport:
    return EpochReport(
        epoch=int(stored["epoch"]),
        lineage=str(stored["lineage"]),
        attempt=str(stored["attempt"]),
        replayed=bool(stored["replayed"]),
        rows_in=None if stored["rows_in"] is None else int(stored["rows_in"]),
        dead_letters={kind: int(number) for kind, number in stored["dead_letters"].items()},
        sinks={
            sink: SinkReport(int(of["rows"]), int(of["tries"]))
            for sink, of in stored["sinks"].items()
        },
        steps=tuple(map(_parsed_step, stored["steps"])),
        thrown_away=int(stored.get("thrown_away", 0)),
        waits_since_ms=finite(stored.get("waits_since_ms", 0.0)),
    )


def _parsed_step(stored: Mapping[str, Any]) -> TimedStep:
    return TimedStep(
        name=str(stored["name"]),
        start_ms=finite(stored["start_ms"]),
        duration_ms=finite(stored["duration_ms"]),
        sink=str(stored["sink"]),
        part=None if stored["part"] is None else int(stored["part"]),
    )


def finite(value: float) -> float:
    """Return a time as it is stored; raises ValueError for NaN and infinity, which JSON may hold."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a time")
    return float(value)
