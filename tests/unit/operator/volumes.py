"""Volumes, views and rows for the tests of `reconcile_volume`. Called by them only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluicegate_operator.reconcile.actions import Report
from sluicegate_operator.resources.addresses import access_of
from sluicegate_operator.resources.volume import (
    CheckpointVolumeSpec,
    CheckpointVolumeStatus,
)
from sluicegate_operator.volumes.actions import RunTask
from sluicegate_operator.volumes.observed import Volume, VolumeObserved
from sluicegate_operator.volumes.passes import Outcome
from sluicegate_operator.volumes.tasks import (
    Broken,
    Prepare,
)
from sluicegate_operator.volumes.volume import reconcile_volume

from .made import NOW, acts, condition, reports

URL = "s3://data/sluice"


def spec(**changes: Any) -> CheckpointVolumeSpec:
    """Return a volume of a store of its own."""
    given = {"endpoint": "http://s3:7070", "bucket": "data", "prefix": "sluice", **changes}
    return CheckpointVolumeSpec(**given)


def token(wanted: CheckpointVolumeSpec | None = None, version: str = "") -> str:
    return f"{access_of(wanted or spec())}/{version}"


def fit(**changes: Any) -> CheckpointVolumeStatus:
    """Return the status of a volume that was checked, measured and pruned 100 s ago."""
    given: dict[str, Any] = {
        "phase": "Ready",
        "observed_generation": 1,
        "checked_time": NOW - 100,
        "checked_access": token(),
        "measured_time": NOW - 100,
        "pruned_time": NOW - 100,
        **changes,
    }
    return CheckpointVolumeStatus(**given)


def failing(count: int = 1, **changes: Any) -> CheckpointVolumeStatus:
    """Return the status of a volume whose last check failed just now."""
    given: dict[str, Any] = {
        "phase": "Failed",
        "failures": count,
        "failed": "AccessDenied",
        "last_error": "no",
        "tried_time": NOW - 1,
        "tried_access": token(),
        "next_try_time": NOW + 4,
        **changes,
    }
    return CheckpointVolumeStatus(**given)


def volume(
    wanted: CheckpointVolumeSpec | None = None,
    status: CheckpointVolumeStatus | None = None,
    **changes: Any,
) -> Volume:
    given = {"namespace": "shop", "name": "store", "uid": "u-vol", "generation": 1, **changes}
    return Volume(spec=wanted or spec(), status=status or CheckpointVolumeStatus(), **given)


def seen(**changes: Any) -> VolumeObserved:
    return VolumeObserved(**{"as_of": NOW, **changes})


def decide(a_volume: Volume, observed: VolumeObserved) -> Outcome[CheckpointVolumeStatus]:
    """Return what is decided, after seeing that deciding again changes nothing more."""
    outcome = reconcile_volume(a_volume, observed, NOW)
    again = reconcile_volume(dataclasses.replace(a_volume, status=outcome.status), observed, NOW)
    assert again.status == outcome.status, "not idempotent"
    assert not any(isinstance(action, Report) for action in again.actions), "reported again"
    return outcome


def task_of(outcome: Any) -> Any:
    """Return the one task that is begun."""
    (found,) = [a.task for a in outcome.actions if isinstance(a, RunTask)]
    return found


def prepare(make: bool = False, access: str = "") -> Prepare:  # noqa: FBT001, FBT002 - as short as a row
    return Prepare(URL, make, "us-east-1", access or token())


def broken(kind: str = "AccessDenied", at: float = NOW) -> Broken:
    return Broken(at, kind, "no", "nothing", "mend it")


OWNED = spec(reclaim_policy="Delete")
LEFT: dict[str, Any] = {"deleted_at": NOW - 100, "held": True}


@dataclass(frozen=True)
class Row:
    """A rule: what is there, and what follows; `ready`: status and reason of the condition."""

    rule: str
    volume: Volume
    seen: VolumeObserved
    phase: str
    acts: list[str] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)
    ready: tuple[str, str] | None = None
    status: dict[str, Any] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    wake: float | None = None


def check(row: Row) -> None:
    """See that what follows is what the row says."""
    outcome = decide(row.volume, row.seen)
    assert outcome.status.phase == row.phase
    assert acts(outcome) == row.acts
    assert reports(outcome) == row.reports
    if row.tasks:
        assert [a.task for a in outcome.actions if isinstance(a, RunTask)] == row.tasks
    if row.ready is not None:
        assert condition(outcome, "Ready") == row.ready
    assert {name: getattr(outcome.status, name) for name in row.status} == row.status
    if row.wake is not None:
        assert outcome.wake_at is not None
        assert outcome.wake_at - NOW == pytest.approx(row.wake, abs=0.01)
