"""Which epoch read a record, and whether that epoch's watermark made its row late, from Spark's `offsets/N`.

Spark plans epoch N with the watermark that `offsets/N` names, and drops late rows by the one of epoch
N-1. So the offset log alone says for each row whether it was late. The watermarks themselves are
compared with the event times that were read before them.
"""

from __future__ import annotations

import enum
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluicegate.sinks.kafka.reader import Record
from sluicegate.storage.object_store import ObjectStore
from sluicegate_jobs.verification.findings import WRONG, Findings


class Late(enum.Enum):
    """Whether the epoch that read a row dropped it as late."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"
    """The offsets of its epoch are pruned, and the oldest retained watermark permits both."""


@dataclass(frozen=True)
class EpochPlan:
    """What `offsets/N` says.

    Args:
        epoch: its number.
        ends: partition of the source -> the first offset after the epoch.
        watermark_ms: ms since 1970; 0 before the first event.
    """

    epoch: int
    ends: Mapping[int, int]
    watermark_ms: int


class Watermarks:
    """The retained plans of decided epochs, and the newest events that were read up to each.

    Args:
        plans: in the order of their epochs.
    """

    def __init__(self, plans: Sequence[EpochPlan] = ()) -> None:
        self._plans = plans
        self._ends: dict[int, list[int]] = {}
        self._newest_ms: dict[int, int] = {}
        """The index of a plan -> the newest event that its epoch read, or earlier pruned ones."""
        for partition in {p for plan in plans for p in plan.ends}:
            self._ends[partition] = [plan.ends.get(partition, 0) for plan in plans]

    def judge(self, record: Record, at_ms: int, window_end_ms: int) -> Late:
        """Return whether the row of a record was late; remembers the time of its event."""
        index = bisect_right(self._ends.get(record.partition, ()), record.offset)
        if index == len(self._plans):
            return Late.NO  # no retained epoch has read it
        self._newest_ms[index] = max(at_ms, self._newest_ms.get(index, at_ms))
        plan = self._plans[index]
        if plan.epoch == 0:
            return Late.YES if window_end_ms <= 0 else Late.NO
        if index and self._plans[index - 1].epoch == plan.epoch - 1:
            late = window_end_ms <= self._plans[index - 1].watermark_ms
            return Late.YES if late else Late.NO
        # a watermark never goes back, so no earlier one exceeds this
        return Late.UNKNOWN if window_end_ms <= plan.watermark_ms else Late.NO

    def check(self, lateness_ms: int, findings: Findings) -> None:
        """Compare the watermarks with the events that `judge` has seen; an earlier event makes none late."""
        newest_ms: int | None = None
        for index, plan in enumerate(self._plans):
            if index == 0 and plan.epoch:  # it may include pruned epochs
                newest_ms = self._newest_ms.get(0)
            highest_ms = 0 if newest_ms is None else max(0, newest_ms - lateness_ms)
            if plan.watermark_ms > highest_ms:
                what = f"offsets/{plan.epoch} has the watermark {plan.watermark_ms} ms"
                findings.add(
                    WRONG,
                    f"{what}, and the events before it permit {highest_ms}: rows were dropped",
                )
            if index in self._newest_ms:
                newest_ms = max(self._newest_ms[index], newest_ms or self._newest_ms[index])


def read_watermarks(objects: ObjectStore, topic: str, newest: int) -> Watermarks:
    """Return the plans of the retained epochs up to `newest`, the newest decided one."""
    names = (name.removeprefix("offsets/") for name in objects.names("offsets/"))
    epochs = sorted(int(name) for name in names if name.isdecimal())
    plans = (read_plan(objects, epoch, topic) for epoch in epochs if epoch <= newest)
    return Watermarks([plan for plan in plans if plan is not None])


def read_plan(objects: ObjectStore, epoch: int, topic: str) -> EpochPlan | None:
    """Return what `offsets/N` says about a topic, None if it says nothing, or its scans disagree."""
    stored = (objects.read(f"offsets/{epoch}") or b"").decode().splitlines()
    # A version, metadata, then the offsets of each source; '-' for a source without offsets.
    sources = [json.loads(line) for line in stored[2:] if line != "-"]
    offsets = [{int(p): int(o) for p, o in s[topic].items()} for s in sources if topic in s]
    if not offsets or any(offset != offsets[0] for offset in offsets):
        return None
    return EpochPlan(epoch, offsets[0], int(json.loads(stored[1]).get("batchWatermarkMs", 0)))
